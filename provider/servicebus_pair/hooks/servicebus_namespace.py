"""``ServiceBusNamespaceHook``: reads and tests a connection to one namespace of a pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook

from servicebus_pair.airflow_runtime.airflow_version import AirflowNotFoundException, mask_secret
from servicebus_pair.core import SyncBridge
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import no_secret
from servicebus_pair.hooks.connection_fields import NAMESPACE_TYPE, check_type, endpoint_from_connection, secret_values

if TYPE_CHECKING:
    from servicebus_pair.core import Endpoint

__all__ = ["ServiceBusNamespaceHook"]


class ServiceBusNamespaceHook(BaseHook):
    """Reads and tests a connection of type ``servicebus_namespace``; to send or receive, use ``ServiceBusPairHook``.

    :param servicebus_namespace_conn_id: the connection.
    :raises ConfigurationError: the connection id holds a secret, which Airflow's own errors would quote.
    """

    conn_name_attr = "servicebus_namespace_conn_id"
    default_conn_name = "servicebus_namespace_default"
    conn_type = NAMESPACE_TYPE
    hook_name = "Azure Service Bus namespace"

    def __init__(self, servicebus_namespace_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        no_secret(self.conn_name_attr, servicebus_namespace_conn_id, belongs="in the connection")
        self.servicebus_namespace_conn_id = servicebus_namespace_conn_id

    def get_endpoint(self) -> Endpoint:
        """Read the connection.

        :raises ConfigurationError: naming the connection, the field, its value (never a secret) and what is allowed.
        :raises AirflowNotFoundException: no such connection.
        """
        connection = self.get_connection(self.servicebus_namespace_conn_id)
        for secret in secret_values(connection):
            mask_secret(secret)
        check_type(connection, NAMESPACE_TYPE)
        return endpoint_from_connection(connection)

    def test_connection(self) -> tuple[bool, str]:
        """Check network, authentication, and the rights Send, Listen and Manage.

        Read-only; it ends within 20 seconds even when the namespace is down. It succeeds if the namespace
        authenticates the client and accepts sends; without a queue to test, the Send right is assumed.

        :returns: whether it succeeded, and the findings as text.
        """
        try:
            endpoint = self.get_endpoint()
        except (ConfigurationError, AirflowNotFoundException) as error:
            return False, str(error)
        from servicebus_pair.core.pair import check_namespace

        with SyncBridge() as bridge:
            found = bridge.run(check_namespace(endpoint))
        return found.usable(listen=False), str(found)
