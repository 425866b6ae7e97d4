"""Extra links of a task: to the Service Bus pairs page in Airflow's UI, and to a namespace in the Azure portal.

A worker creates them when a task ends, in any state, and Airflow stores them with its XComs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink

from servicebus_pair.airflow_runtime.airflow_version import AirflowNotFoundException, conf
from servicebus_pair.core.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator

    from servicebus_pair.airflow_runtime.airflow_version import TaskInstanceKey
    from servicebus_pair.core import Endpoint

__all__ = ["AzurePortalLink", "PairPageLink", "Side", "portal_url"]

Side: TypeAlias = Literal["primary", "secondary"]
_PAGE_PATH: Final = "plugin/servicebus-pairs"
_PUBLIC_CLOUD: Final = "https://management.azure.com"
# Azure portals by the Resource Manager endpoint of their cloud, from Microsoft's lists of cloud endpoints.
_PORTALS: Final[Mapping[str, str]] = {
    _PUBLIC_CLOUD: "https://portal.azure.com",
    "https://management.usgovcloudapi.net": "https://portal.azure.us",
    "https://management.chinacloudapi.cn": "https://portal.azure.cn",
}


class PairPageLink(BaseOperatorLink):
    """Link to the page of this provider's plugin: health of the entities, depth of the backlog."""

    name = "Service Bus pairs"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002  Airflow's protocol
        """Return the Service Bus pairs page on this deployment's ``[api] base_url``."""
        return f"{conf.get('api', 'base_url', fallback='/').rstrip('/')}/{_PAGE_PATH}"


class AzurePortalLink(BaseOperatorLink):
    """Link to the namespace in the Azure portal; empty if the connection has no subscription and resource group."""

    name = "Azure portal"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002  Airflow's protocol
        """Return the URL of the namespace on the operator's ``portal_side``; Airflow hides a link without URL."""
        task: Any = operator
        try:
            settings = task.hook.get_settings()
        except (ConfigurationError, AirflowNotFoundException):  # the task has already failed with this error
            return ""
        endpoint: Endpoint = settings.primary if task.portal_side == "primary" else settings.secondary
        arm = endpoint.arm
        if arm is None:
            return ""
        return portal_url(
            subscription_id=arm.subscription_id,
            resource_group=arm.resource_group,
            namespace=endpoint.namespace,
            management_endpoint=arm.management_endpoint,
        )


def portal_url(
    *, subscription_id: str, resource_group: str, namespace: str, management_endpoint: str | None = None
) -> str:
    """Return the URL of a namespace in its cloud's portal, or an empty text for an unknown cloud.

    :param management_endpoint: URL of the cloud's Resource Manager; the public cloud when not given.
    """
    endpoint = _PUBLIC_CLOUD if management_endpoint is None else management_endpoint
    portal = _PORTALS.get(endpoint.rstrip("/").casefold())
    if portal is None:
        return ""
    subscription, group, name = (quote(each, safe="") for each in (subscription_id, resource_group, namespace))
    return (
        f"{portal}/#resource/subscriptions/{subscription}/resourceGroups/{group}"
        f"/providers/Microsoft.ServiceBus/namespaces/{name}/overview"
    )
