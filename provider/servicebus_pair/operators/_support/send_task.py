"""Base class of the tasks that send: any number of messages with bounded memory."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.sdk import Context

from servicebus_pair.airflow_runtime.airflow_version import conf
from servicebus_pair.airflow_runtime.message_spec import MessageDefaults, MessageReader, MessageSpec
from servicebus_pair.airflow_runtime.observers.asset_events import HealthChangeRecorder
from servicebus_pair.airflow_runtime.observers.lineage import TaskLineage
from servicebus_pair.airflow_runtime.observers.task_activity import nonzero_counts
from servicebus_pair.airflow_runtime.task_ledger import StoragePath, open_ledger
from servicebus_pair.airflow_runtime.validators import duration, entity_path, optional, storage_path
from servicebus_pair.core import SendResult
from servicebus_pair.core.errors import ConfigurationError, PairError, SendError
from servicebus_pair.core.events import Observer
from servicebus_pair.core.model import is_folder
from servicebus_pair.links.servicebus_pair import Side
from servicebus_pair.operators._support.base import LineageMixin, SpoolTask
from servicebus_pair.operators._support.refused_messages import RefusedMessages

if TYPE_CHECKING:
    from servicebus_pair.core import Operations

__all__ = ["BaseSendOperator", "state_nothing_sent"]

_MAX_CHUNK_MESSAGES: Final = 2_000
_MAX_CHUNK_BYTES: Final = 4 << 20  # of bodies
_LOG_INTERVAL_SECONDS: Final = 10.0
_NOTHING_SENT: Final = "nothing was sent"
_LOCAL_EXECUTOR: Final = "LocalExecutor"


@contextmanager
def state_nothing_sent() -> Iterator[None]:
    """Add "nothing was sent" to every error of the block."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}; {_NOTHING_SENT}") from error
    except Exception as error:
        error.add_note(_NOTHING_SENT)
        raise


_timeout = optional(duration(timedelta(milliseconds=1)))


class BaseSendOperator(LineageMixin, SpoolTask):
    """Sends messages from any source, in chunks; the parameters are those of ``ServiceBusPairSendOperator``."""

    template_fields: Collection[str] = (*SpoolTask.template_fields, "entity", "defaults", "ledger", "timeout")
    parameter_checks: ClassVar = {
        "entity": entity_path,
        "defaults": lambda _, value: MessageReader(seed="", defaults=value),
        "ledger": optional(storage_path),
        "timeout": _timeout,
    }
    message_content: ClassVar[Collection[str]] = ("defaults",)
    portal_side: ClassVar[Side] = "primary"

    def __init__(
        self,
        *,
        entity: str,
        defaults: MessageDefaults | Mapping[str, Any] | str | None = None,
        ledger: StoragePath | None = None,
        timeout: timedelta | float | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.entity = entity
        self.defaults = defaults
        self.ledger = ledger
        self.timeout = timeout
        self.lineage = TaskLineage()
        self.check_parameters()

    def reader(self, context: Context) -> MessageReader:
        """Return the reader of this task's messages; generated ids depend on the task instance, not on the try."""
        instance = context["ti"]
        identity = (instance.dag_id, instance.run_id, instance.task_id, instance.map_index)
        return MessageReader(seed="/".join(map(str, identity)), defaults=self.defaults)

    def send(self, context: Context, specs: Iterable[MessageSpec], *, total: int | None = None) -> dict[str, Any]:
        """Send messages in chunks and return the task's result.

        :param specs: consumed in this thread, one chunk at a time.
        :param total: the number of messages, if known; for the log.
        :raises SendError: not every message was accepted; the error says how many were.
        :raises MessagesRefusedError: the service refused some and accepted the others, now or in an earlier try.
        """
        entity, health_changes = entity_path("entity", self.entity), HealthChangeRecorder()
        timeout = _timeout("timeout", self.timeout)
        progress = _SendProgress(entity, total=total, timeout=timeout and timeout.total_seconds(), log=self.log)
        self.lineage = TaskLineage()
        with ExitStack() as stack:
            with state_nothing_sent():
                observers: list[Observer] = [health_changes, self.lineage]
                if self.ledger is not None:
                    observers.append(stack.enter_context(open_ledger(self.ledger, run=context["ti"].run_id)))
                session = stack.enter_context(self._cancellable.session())
                pair = stack.enter_context(session.enter(self.hook.pair(observers=observers)))
                self.lineage.set_endpoints(pair, writes=[entity])
                sender = stack.enter_context(session.enter(pair.sender(entity)))
            self._warn_of_separate_spools(pair.options.spool)
            refused = RefusedMessages()
            if context["ti"].try_number > 1:
                session.run(refused.load())
            with progress.described_in_errors():
                try:
                    for chunk in _chunks(refused.without(specs)):
                        messages = [spec.build() for spec in chunk]
                        progress.in_flight = len(messages)
                        try:
                            progress.add(session.run(sender.send(messages, timeout=progress.remaining_seconds())))
                        except SendError as error:
                            if not refused.add(error):
                                raise
                            progress.add(error.result)
                except BaseException:
                    session.run(refused.save())
                    raise
            operations = pair.meter.read()
        health_changes.emit(context, self.servicebus_pair_conn_id)
        progress.log()
        refused.raise_if_any(entity, accepted=progress.accepted)
        return progress.result(operations)

    def _warn_of_separate_spools(self, spool: str | None) -> None:
        """Warn if the workers may each have a folder of their own, from which nobody else can take the messages."""
        executor = self.executor or conf.get("core", "executor", fallback=_LOCAL_EXECUTOR)
        # Several are separated by commas, with the default first; each may be a path of a class, after an alias.
        name = re.split(r"[.:=]", executor.split(",")[0].strip())[-1]
        if is_folder(spool) and name not in (_LOCAL_EXECUTOR, "SequentialExecutor"):
            self.log.warning(
                "spool is %s, a folder, and tasks run in %s: unless it is a mount that all workers, the triggerer and "
                "the API server share, messages in it can only be seen on the worker that took them; use the URL of an "
                "object store",
                spool,
                name,
            )


class _SendProgress:
    """What was accepted so far, for the log, for errors and for the result."""

    def __init__(self, entity: str, *, total: int | None, timeout: float | None, log: Any) -> None:
        self._entity = entity
        self._total = "?" if total is None else str(total)
        self._timeout = timeout
        self._log = log
        self._started_at = self._logged_at = time.monotonic()
        # Counts only: the ids of a million messages would not fit in memory.
        self._accepted = SendResult()
        self._accepted_in_order = 0
        # Messages of the current chunk, whose state is unknown when the task is interrupted.
        self.in_flight = 0

    @property
    def accepted(self) -> int:
        """How many messages were accepted."""
        return self._accepted.sent

    def remaining_seconds(self) -> float | None:
        if self._timeout is None:
            return None
        return max(0.0, self._timeout - (time.monotonic() - self._started_at))

    def add(self, result: SendResult) -> None:
        """Add a chunk that was accepted, except what was refused."""
        self._add(result)
        self._accepted_in_order = self._accepted.sent
        if time.monotonic() - self._logged_at >= _LOG_INTERVAL_SECONDS:
            self.log()

    def _add(self, result: SendResult) -> None:
        self.in_flight = 0
        before = self._accepted
        queues = dict.fromkeys((*before.backlog_queues, *result.backlog_queues))
        self._accepted = SendResult(
            before.primary + result.primary,
            before.diverted + result.diverted,
            tuple(queues),
            spooled=before.spooled + result.spooled,
        )

    def log(self) -> None:
        self._logged_at = time.monotonic()
        accepted = self._accepted
        if not accepted.sent:
            self._log.warning("entity=%s: there was no message to send", self._entity)
        self._log.info(
            "entity=%s sent=%d of=%s primary=%d diverted=%d spooled=%d seconds=%.1f",
            *(self._entity, accepted.sent, self._total, accepted.primary, accepted.diverted, accepted.spooled),
            self._logged_at - self._started_at,
        )

    @contextmanager
    def described_in_errors(self) -> Iterator[None]:
        """Add what was accepted so far to every error of the block."""
        try:
            yield
        except SendError as error:
            self._add(error.result)
            described = type(error)(
                f"{self._describe(in_doubt=len(error.in_doubt))}: {_reason(error)}",
                cause=error.cause,
                result=self._accepted,
                unsent=error.unsent,
                in_doubt=error.in_doubt,
            )
            described.refused = error.refused
            raise described from error
        except ConfigurationError as error:
            raise ConfigurationError(f"{error}; {self._describe()}") from error
        except BaseException as error:
            error.add_note(self._describe())
            self._log.warning("%s: ended by %s", self._describe(), type(error).__name__)
            raise

    def _describe(self, *, in_doubt: int = 0) -> str:
        accepted, uncertain = self._accepted, in_doubt or self.in_flight
        if not (accepted.sent or uncertain):
            return f"{_NOTHING_SENT} to {self._entity}"
        doubt = f"some of the {uncertain} in flight may have been accepted too; " if uncertain else ""
        spooled = f", {accepted.spooled} by the spool" if accepted.spooled else ""
        return (
            f"{accepted.sent} messages for {self._entity} were accepted, {accepted.primary} by the primary and "
            f"{accepted.diverted} by the backlog{spooled}, including all of the first {self._accepted_in_order}; "
            f"{doubt}the "
            "others were not"
        )

    def result(self, operations: Operations) -> dict[str, Any]:
        return {
            "entity": self._entity,
            "sent": self._accepted.sent,
            "primary": self._accepted.primary,
            "diverted": self._accepted.diverted,
            "spooled": self._accepted.spooled,
            "backlog_queues": list(self._accepted.backlog_queues),
            "operations": nonzero_counts(operations),
        }


def _reason(error: SendError) -> str:
    """Return what ended a send, without the error's own counts, which cover one chunk only."""
    cause = error.__cause__
    return str(cause) if isinstance(cause, PairError) else str(error)


def _chunks(specs: Iterable[MessageSpec]) -> Iterator[list[MessageSpec]]:
    """Split messages into chunks that fit in memory."""
    chunk: list[MessageSpec] = []
    size = 0
    for spec in specs:
        chunk.append(spec)
        size += len(spec.body)
        if len(chunk) == _MAX_CHUNK_MESSAGES or size >= _MAX_CHUNK_BYTES:
            yield chunk
            chunk, size = [], 0
    if chunk:
        yield chunk
