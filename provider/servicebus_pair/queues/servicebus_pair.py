"""``ServiceBusPairQueueProvider``: lets ``MessageQueueTrigger`` receive from the entities of a pair."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, unquote, urlsplit

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import no_secret
from servicebus_pair.triggers.receive import ServiceBusReceiveTrigger

try:
    from airflow.providers.common.messaging.providers.base_provider import BaseMessageQueueProvider
except ImportError as error:
    from servicebus_pair.airflow_runtime.airflow_version import AirflowOptionalProviderFeatureException

    raise AirflowOptionalProviderFeatureException(
        "the queues of servicebus_pair need apache-airflow-providers-common-messaging: install the extra messaging"
    ) from error

if TYPE_CHECKING:
    from airflow.triggers.base import BaseEventTrigger

__all__ = ["ServiceBusPairQueueProvider"]

_SCHEME: Final = "servicebus-pair"


class ServiceBusPairQueueProvider(BaseMessageQueueProvider):
    """Receives with ``MessageQueueTrigger(scheme="servicebus-pair", entity=..., ...)``; see the trigger's parameters.

    A queue is also named by ``servicebus-pair://conn_id/entity``.
    """

    scheme = _SCHEME

    def queue_matches(self, queue: str) -> bool:
        """Return whether ``queue`` is a URI of a pair's entity."""
        return queue.startswith(f"{_SCHEME}://")

    def trigger_class(self) -> type[BaseEventTrigger]:
        """Return the trigger."""
        return ServiceBusReceiveTrigger

    def trigger_kwargs(self, queue: str, **kwargs: Any) -> dict[str, Any]:  # noqa: ARG002  Airflow adds them itself
        """Return the connection and the entity of a URI.

        :raises ConfigurationError: it lacks one of them, has a query, or holds a secret.
        """
        no_secret("queue", queue, belongs="in the connection")
        parts = urlsplit(queue)
        entity = unquote(parts.path).strip("/")
        if not parts.netloc or not entity or parse_qsl(parts.query) or parts.fragment:
            raise ConfigurationError(f"queue is {queue!r}: it must be {_SCHEME}://conn_id/entity")
        return {"servicebus_pair_conn_id": unquote(parts.netloc), "entity": entity}
