"""``ServiceBusReceiveOperator``: receives messages of the primary, and completes them once they are stored."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any, ClassVar

from airflow.sdk import Context, XComArg

from servicebus_pair.airflow_runtime.airflow_version import needed
from servicebus_pair.airflow_runtime.pair_task import failing_at_once
from servicebus_pair.airflow_runtime.validators import optional, storage_path, text
from servicebus_pair.operators._support.receive_task import BaseReceiveOperator
from servicebus_pair.operators._support.received_messages import ReceivedMessages
from servicebus_pair.triggers.primary_health import check_event

__all__ = ["ServiceBusReceiveOperator"]


class ServiceBusReceiveOperator(BaseReceiveOperator):
    """Receives messages from a queue or subscription of the primary, or from its dead letters.

    At least once: a message is completed only after it is stored where the task's retries find it. A task that is
    tried or cleared again returns what it has stored and receives nothing, so a message of a task that died in between
    may come again in another run. While the primary is down, the task waits until a ping is answered.

    The result is ``{"count": n, "messages": [...], "path": None}``, or beyond 48 KB ``{"count": n, "messages": None,
    "path": file}`` with one message per line, as JSON. A message is a mapping of ``body`` and the fields that are set,
    by the names of ``ServiceBusPairSendOperator``, and ``broker`` with what the broker says of it. A message with
    values that JSON cannot hold is dead-lettered as ``Unreadable``.

    :param entity: path of a queue, or ``topic/Subscriptions/name`` (templated).
    :param max_messages: 1 to 10,000; without ``folder``, no more than fit (templated).
    :param max_wait: how long to wait for the first message: a ``timedelta`` or seconds, ``None`` for no limit; the time
        during which the primary is down does not count (templated).
    :param session_id: receive one session; ``"*"`` for the next ones that have messages (templated).
    :param dead_letter: receive from the dead-letter queue (templated).
    :param properties: take only messages with these application properties; a subscription with a rule is cheaper
        (templated).
    :param folder: folder, or URL of one in an object store, for results beyond 48 KB: the file is
        ``folder/dag_id/run_id/task_id.jsonl`` (templated). Before Airflow 3.3 it is required, and holds every result.
    :param storage_conn_id: connection of the object store (templated).
    :param deferrable: wait for the first message in the triggerer and occupy no worker.
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is invalid, or a message needs a ``folder``.
    :raises ServiceError: the primary refuses to deliver.
    """

    template_fields = (*BaseReceiveOperator.template_fields, "folder", "storage_conn_id")
    parameter_checks: ClassVar = {"folder": optional(storage_path), "storage_conn_id": optional(text)}

    def __init__(
        self,
        *,
        folder: str | PathLike[str] | XComArg | None = None,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.folder = folder
        self.storage_conn_id = storage_conn_id
        self.check_parameters()
        if folder is None:
            needed("task_state", f"task_id {self.task_id}: receiving without folder", "give it a folder")

    @failing_at_once()
    def execute(self, context: Context) -> dict[str, Any]:
        """Return what an earlier try stored, or receive."""
        return self._run(context, resumed=False)

    @failing_at_once()
    def resume(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Receive, now that there is a message or ``max_wait`` is over."""
        check_event(event, found=bool)
        return self._run(context, resumed=True)

    def _run(self, context: Context, *, resumed: bool) -> dict[str, Any]:
        result = self.run_async(self._receive(context, resumed=resumed))
        if result is None:
            self.wait_in_triggerer()
        return result or {}

    async def _receive(self, context: Context, *, resumed: bool) -> dict[str, Any] | None:
        folder = None if self.folder is None else storage_path("folder", self.folder)
        store = ReceivedMessages(context, folder=folder, storage_conn_id=self.storage_conn_id)
        kept = await store.load()
        if kept is not None:
            self.log.info("entity=%s: an earlier try stored messages=%d", self.entity, kept["count"])
            return kept
        async with self.receiver() as receiver:
            received = await self.receive(receiver, resumed=resumed)
            if received is None:
                return None
            fields = [dict(message.fields) for message in received]
            count = store.fitting(fields)
            result = await store.keep(fields[:count])
            unconfirmed = await receiver.complete(received[:count])
        self.log.info(
            "entity=%s: received messages=%d, may come again=%d, returned=%d",
            self.entity,
            count,
            unconfirmed,
            len(received) - count,
        )
        return result
