"""``ServiceBusNamespaceHook``: what tests a connection to one namespace of a pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.exceptions import AirflowNotFoundException
from airflow.sdk.log import mask_secret

from servicebus_pair.core.blocking import Bridge
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.hooks.connections import NAMESPACE_TYPE, check_type, endpoint_of, secrets_of

if TYPE_CHECKING:
    from servicebus_pair.core.options import Endpoint

__all__ = ["ServiceBusNamespaceHook"]


class ServiceBusNamespaceHook(BaseHook):
    """Reads and tests a connection of type ``servicebus_namespace``; messages go through ``ServiceBusPairHook``.

    :param conn_id: the connection.
    """

    conn_name_attr = "conn_id"
    default_conn_name = "servicebus_namespace_default"
    conn_type = NAMESPACE_TYPE
    hook_name = "Azure Service Bus namespace"

    def __init__(self, conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id

    def get_endpoint(self) -> Endpoint:
        """Read the connection.

        :raises ConfigurationError: naming the connection, the field, its value (never a secret) and what is allowed.
        :raises AirflowNotFoundException: no such connection.
        """
        connection = self.get_connection(self.conn_id)
        for secret in secrets_of(connection):
            mask_secret(secret)
        check_type(connection, NAMESPACE_TYPE)
        return endpoint_of(connection)

    def test_connection(self) -> tuple[bool, str]:
        """Say what works: reach, authenticate, and the rights Send, Listen and Manage.

        Changes nothing and ends within 20 seconds, also when the namespace is down. It succeeds if the client is
        known and messages can be sent, as far as there was a queue to try on.
        """
        try:
            endpoint = self.get_endpoint()
        except (ConfigurationError, AirflowNotFoundException) as error:
            return False, str(error)
        from servicebus_pair.core.inspection import inspect_namespace

        with Bridge() as bridge:
            found = bridge.run(inspect_namespace(endpoint))
        return found.usable(listen=False), str(found)
