"""Sending from a task: any number of messages, a bounded number of them in memory."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final

from airflow.sdk import Context

from servicebus_pair.core.errors import ConfigurationError, PairError, SendError
from servicebus_pair.core.events import Observer
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.core.results import SendResult
from servicebus_pair.hooks.lineage import TaskLineage
from servicebus_pair.hooks.news import HealthNews
from servicebus_pair.links.servicebus_pair import Side
from servicebus_pair.operators.base import PairTask
from servicebus_pair.operators.counting import counted
from servicebus_pair.operators.lineage import TellsLineage
from servicebus_pair.operators.messages import MessageDefaults, MessageReader, MessageSpec
from servicebus_pair.operators.parameters import check_early, path_of_entity

if TYPE_CHECKING:
    from servicebus_pair.core.costs import Operations

__all__ = ["SendTask", "before_sending"]

# Messages that are handed to one send at a time, and about how many bytes of bodies.
_PART: Final = 2_000
_PART_BYTES: Final = 4 << 20
_BETWEEN_PROGRESS: Final = 10.0
_NOTHING: Final = "nothing was sent"


@contextmanager
def before_sending() -> Iterator[None]:
    """Have an error of what is checked or opened here say that nothing was sent."""
    try:
        yield
    except ConfigurationError as error:
        raise ConfigurationError(f"{error}; {_NOTHING}") from error
    except Exception as error:
        error.add_note(_NOTHING)
        raise


class SendTask(TellsLineage, PairTask):
    """What sends a task's messages, wherever they come from.

    :param entity: path of the queue or topic (templated).
    :param defaults: fields that every message has which has no own (templated).
    :param ledger: folder for the record of each accepted message (templated).
    :param timeout: seconds for the whole send, what the messages take to come included.
    """

    template_fields: Collection[str] = ("entity", "defaults", "ledger")
    portal_side: ClassVar[Side] = "primary"

    def __init__(
        self,
        *,
        entity: str,
        defaults: MessageDefaults | Mapping[str, Any] | str | None = None,
        ledger: str | None = None,
        timeout: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.entity = entity
        self.defaults = defaults
        self.ledger = ledger
        self.timeout = timeout
        self.lineage = TaskLineage()
        check_early("entity", entity, path_of_entity)
        check_early("defaults", defaults, lambda _, value: MessageReader(seed="", defaults=value))
        if timeout is not None:
            _check_timeout(timeout)

    def reader(self, context: Context) -> MessageReader:
        """Answer the reader of this task's messages; ids depend on the task instance, not on the attempt."""
        instance = context["ti"]
        identity = (instance.dag_id, instance.run_id, instance.task_id, instance.map_index)
        return MessageReader(seed="/".join(map(str, identity)), defaults=self.defaults)

    def send(self, context: Context, specs: Iterable[MessageSpec], *, of: int | None = None) -> dict[str, Any]:
        """Send messages in parts, and answer counts and names.

        :param specs: taken in this thread, part by part.
        :param of: how many there are, for the log.
        :raises SendError: not every message was accepted; it says how many were.
        """
        entity, news = path_of_entity("entity", self.entity), HealthNews()
        tally = _Tally(entity, of=of, timeout=self.timeout, log=self.log)
        self.lineage = TaskLineage()
        with ExitStack() as stack:
            with before_sending():
                observers: list[Observer] = [news, self.lineage]
                if self.ledger is not None:
                    observers.append(stack.enter_context(_ledger(self.ledger, run=context["ti"].run_id)))
                calls = stack.enter_context(self._run.calls())
                pair = stack.enter_context(calls.opened(self.hook.pair(observers=observers)))
                self.lineage.opened(pair, writes=[entity])
                sender = stack.enter_context(calls.opened(pair.sender(entity)))
            stack.enter_context(tally.told())
            for part in _parts(specs):
                messages = [spec.build() for spec in part]
                tally.in_hand = len(messages)
                tally.add(calls.run(sender.send(messages, timeout=tally.seconds_left())))
            operations = pair.meter.read()
        news.announce(context, self.conn_id)
        tally.tell()
        return tally.result(operations)


def _check_timeout(value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise ConfigurationError(f"timeout is {value!r}: it must be a number of seconds above 0")


def _ledger(folder: str, *, run: str) -> Ledger:
    try:
        return Ledger(folder, run=run)
    except OSError as error:
        raise ConfigurationError(
            f"ledger {folder!r} cannot be written, {type(error).__name__}: {error.strerror}: it must be a folder that "
            "the worker may write to"
        ) from error


class _Tally:
    """What was accepted so far, and the time that it took."""

    def __init__(self, entity: str, *, of: int | None, timeout: float | None, log: Any) -> None:
        self._entity = entity
        self._of = "?" if of is None else str(of)
        self._timeout = timeout
        self._log = log
        self._began = self._told = time.monotonic()
        # Counts only: the ids of a million messages are not kept.
        self._sum = SendResult()
        self._whole = 0
        # Of what is being sent nothing is known when the caller is interrupted.
        self.in_hand = 0

    def seconds_left(self) -> float | None:
        if self._timeout is None:
            return None
        return max(0.0, self._timeout - (time.monotonic() - self._began))

    def add(self, result: SendResult) -> None:
        """Add a part that was accepted whole."""
        self._add(result)
        self._whole = self._sum.sent
        if time.monotonic() - self._told >= _BETWEEN_PROGRESS:
            self.tell()

    def _add(self, result: SendResult) -> None:
        self.in_hand = 0
        queues = dict.fromkeys((*self._sum.backlog_queues, *result.backlog_queues))
        self._sum = SendResult(self._sum.primary + result.primary, self._sum.diverted + result.diverted, tuple(queues))

    def tell(self) -> None:
        self._told = time.monotonic()
        if not self._sum.sent:
            self._log.warning("entity=%s: there was no message to send", self._entity)
        self._log.info(
            "entity=%s sent=%d of=%s primary=%d diverted=%d seconds=%.1f",
            *(self._entity, self._sum.sent, self._of, self._sum.primary, self._sum.diverted),
            self._told - self._began,
        )

    @contextmanager
    def told(self) -> Iterator[None]:
        """Have an error say what was accepted before it."""
        try:
            yield
        except SendError as error:
            self._add(error.result)
            raise type(error)(
                f"{self._account(in_doubt=len(error.in_doubt))}: {_why(error)}",
                cause=error.cause,
                result=self._sum,
                unsent=error.unsent,
                in_doubt=error.in_doubt,
            ) from error
        except ConfigurationError as error:
            raise ConfigurationError(f"{error}; {self._account()}") from error
        except BaseException as error:
            error.add_note(self._account())
            self._log.warning("%s: ended by %s", self._account(), type(error).__name__)
            raise

    def _account(self, *, in_doubt: int = 0) -> str:
        done = self._sum
        if not (done.sent or self.in_hand or in_doubt):
            return f"{_NOTHING} to {self._entity}"
        doubt = f"some of the {in_doubt or self.in_hand} in hand may be too; " if in_doubt or self.in_hand else ""
        return (
            f"{done.sent} messages for {self._entity} were accepted, {done.primary} by the primary and {done.diverted} "
            f"by the backlog, all of the first {self._whole} among them; {doubt}the others were not"
        )

    def result(self, operations: Operations) -> dict[str, Any]:
        return {
            "entity": self._entity,
            "sent": self._sum.sent,
            "primary": self._sum.primary,
            "diverted": self._sum.diverted,
            "backlog_queues": list(self._sum.backlog_queues),
            "operations": counted(operations),
        }


def _why(error: SendError) -> str:
    """What ended a send, without its account of this one part."""
    ended = error.__cause__
    return str(ended) if isinstance(ended, PairError) else str(error)


def _parts(specs: Iterable[MessageSpec]) -> Iterator[list[MessageSpec]]:
    """Cut into parts that memory can hold."""
    part: list[MessageSpec] = []
    size = 0
    for spec in specs:
        part.append(spec)
        size += len(spec.body)
        if len(part) == _PART or size >= _PART_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
