"""``ServiceBusPairSendOperator``: sends a small batch from a DAG, failover-aware."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from airflow.sdk import Context

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.events import Observer
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.hooks.news import HealthNews
from servicebus_pair.operators.base import PairOperator
from servicebus_pair.operators.messages import read_messages

__all__ = ["ServiceBusPairSendOperator"]


class ServiceBusPairSendOperator(PairOperator):
    """Sends messages to a queue or topic of the primary, or to the backlog while that is failed over.

    At least once. A retried task sends every message again with the same ids: those that were given,
    or ids made from the task instance and each message's place in the list. An outage is survived
    within the send itself, so a retry is for the case that primary and backlog were both unreachable.

    The result is ``{"entity", "sent", "primary", "diverted", "backlog_queues"}``, counts and names. A
    failover or recovery that the send finds is shared with other tasks and becomes an asset event.

    :param entity: path of the queue or topic (templated).
    :param messages: texts, or mappings with ``body`` and any of ``message_id``, ``session_id``,
        ``subject``, ``content_type``, ``correlation_id``, ``time_to_live`` in seconds,
        ``scheduled_enqueue_time`` in ISO 8601, ``application_properties`` (templated).
    :param ledger: folder for the record of each accepted message; no ledger when not given (templated).
    :param timeout: seconds for the whole send; as long as it takes when not given.
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is wrong; nothing has been sent.
    :raises SendError: not every message was accepted; the log says how many were.
    """

    template_fields = ("entity", "messages", "ledger")

    def __init__(
        self,
        *,
        entity: str,
        messages: Sequence[str | Mapping[str, Any]],
        ledger: str | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.entity = entity
        self.messages = messages
        self.ledger = ledger
        self.timeout = timeout

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Send."""
        instance = context["ti"]
        identity = (instance.dag_id, instance.run_id, instance.task_id, instance.map_index)
        specs = read_messages(self.messages, seed="/".join(map(str, identity)))
        if not self.entity:
            raise ConfigurationError("entity is '': it must be the path of a queue or topic")
        news = HealthNews()
        with ExitStack() as stack:
            observers: list[Observer] = [news]
            if self.ledger is not None:
                observers.append(stack.enter_context(Ledger(self.ledger, run=instance.run_id)))
            async with self.hook.pair(observers=observers) as pair, pair.sender(self.entity) as sender:
                result = await sender.send([spec.build() for spec in specs], timeout=self.timeout)
        news.announce(context, self.conn_id)
        self.log.info(
            "entity=%s sent=%d primary=%d diverted=%d", self.entity, result.sent, result.primary, result.diverted
        )
        return {
            "entity": self.entity,
            "sent": result.sent,
            "primary": result.primary,
            "diverted": result.diverted,
            "backlog_queues": list(result.backlog_queues),
        }
