"""Links of a task: to the page of the pairs in Airflow's UI, and to a namespace in the Azure portal.

A worker makes them when a task ends, in whatever state, and Airflow keeps them beside its XComs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink, conf
from airflow.sdk.exceptions import AirflowNotFoundException

from servicebus_pair.core.errors import ConfigurationError

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

    from servicebus_pair.core.options import Endpoint

__all__ = ["AzurePortalLink", "PairPageLink", "Side", "portal_url"]

Side: TypeAlias = Literal["primary", "secondary"]
_PAGE: Final = "plugin/servicebus-pairs"
_PUBLIC: Final = "https://management.azure.com"
# Portals of the clouds, by the address of their Resource Manager (Microsoft's lists of cloud endpoints).
_PORTALS: Final[Mapping[str, str]] = {
    _PUBLIC: "https://portal.azure.com",
    "https://management.usgovcloudapi.net": "https://portal.azure.us",
    "https://management.chinacloudapi.cn": "https://portal.azure.cn",
}


class PairPageLink(BaseOperatorLink):
    """To the page of this provider's plugin: health of the entities, depth of the backlog."""

    @property
    def name(self) -> str:
        """The text of the button."""
        return "Service Bus pairs"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002  Airflow's protocol
        """Return the page of the pairs on this deployment's ``[api] base_url``."""
        return f"{conf.get('api', 'base_url', fallback='/').rstrip('/')}/{_PAGE}"


class AzurePortalLink(BaseOperatorLink):
    """To the namespace in the Azure portal; there is none while the connection has no ARM coordinates."""

    @property
    def name(self) -> str:
        """The text of the button."""
        return "Azure portal"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:  # noqa: ARG002  Airflow's protocol
        """Return the address of the operator's ``portal_side``, or nothing, which Airflow shows as no link."""
        task: Any = operator
        try:
            settings = task.hook.get_settings()
        except (ConfigurationError, AirflowNotFoundException):  # that is what the task has failed with
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
    """Return the address of a namespace's overview in the portal of its cloud, or nothing for an unknown cloud.

    :param management_endpoint: URL of the Resource Manager; that of the public cloud when not given.
    """
    portal = _PORTALS.get((_PUBLIC if management_endpoint is None else management_endpoint).rstrip("/").casefold())
    if portal is None:
        return ""
    subscription, group, name = (quote(each, safe="") for each in (subscription_id, resource_group, namespace))
    return (
        f"{portal}/#resource/subscriptions/{subscription}/resourceGroups/{group}"
        f"/providers/Microsoft.ServiceBus/namespaces/{name}/overview"
    )
