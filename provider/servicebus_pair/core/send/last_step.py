"""How the messages of a batch end that the primary does not take as they are: divided, refused, diverted, spooled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from servicebus_pair.core.model.errors import (
    HealthStoreError,
    MessageTooLargeError,
    NoBacklogQueueError,
    SendTimeoutError,
    SpoolError,
    TimedOutError,
)
from servicebus_pair.core.model.health_state import EntityHealth
from servicebus_pair.core.model.health_transitions import BeginSpool, SendFailed
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.results import SendResult
from servicebus_pair.core.send.delivery_state import AttemptExecutor, MessageStatus, TrackedBatch, TrackedMessage
from servicebus_pair.core.send.diversion import checked_copy
from servicebus_pair.core.send.next_step import AttemptHistory, Divert, Fail, Refuse, Split, Spool, TimeOut, is_overdue
from servicebus_pair.core.send.pair_context import lease
from servicebus_pair.core.send.sender_context import SenderContext
from servicebus_pair.core.send.timeouts import Deadline
from servicebus_pair.core.spool.spool_file import FileFullError

_log = get_logger(__name__)
_MAX_WRITES: Final = 3
NO_HISTORY: Final = AttemptHistory()
"""Of a batch that was not attempted yet."""


@dataclass(slots=True)
class Part:
    """Messages that are sent together, and what happened to them so far."""

    messages: list[TrackedMessage]
    batch: TrackedBatch | None = None
    history: AttemptHistory = NO_HISTORY


class LastStep:
    """Executes the last step of a part.

    :param executor: keeps the account of the send.
    :param deadline: of the whole send.
    """

    def __init__(self, sender: SenderContext, executor: AttemptExecutor, *, deadline: Deadline) -> None:
        self._sender = sender
        self._entity = sender.entity
        self._context = sender.pair
        self._policy = sender.policy
        self._registry = sender.pair.registry
        self._backlog = sender.backlog
        self._executor = executor
        self._deadline = deadline

    async def execute(self, part: Part, step: Split | Refuse | Divert | Spool | Fail | TimeOut) -> list[Part]:
        """Execute ``step``; return the parts that take the place of ``part``."""
        match step:
            case Split():
                middle = (len(part.messages) + 1) // 2
                halves = part.messages[:middle], part.messages[middle:]
                return [Part(half, None, part.history.part()) for half in halves]
            case Refuse():
                self._refuse(part)
                return []
            case Divert():
                return await self._divert(part)
            case Spool():
                return await self._spool(part)
            case TimeOut(error):
                raise self._deadline.timeout_error(last=error)
            case Fail(error):
                raise error

    async def fail_over(self, part: Part, health: EntityHealth) -> EntityHealth:
        """With session order, fail over an entity that did not with the last failure; return its health then.

        The interval ended while a lease was waited for, or the failover could not be written.

        :raises HealthStoreError: it cannot be written now either.
        """
        error = part.history.error
        self._registry.apply(self._entity, SendFailed(str(error), health.since))
        health = await self._lease(part.history)
        part.history = part.history.in_epoch(health.epoch)
        if is_overdue(part.history, health, now=self._context.clock.now(), interval=self._policy.interval):
            raise HealthStoreError(
                f"{self._entity} cannot fail over although it fails ({error}), because the shared store of health "
                "cannot be written, or not in time: repair it and send again"
            )
        return health

    async def _lease(self, history: AttemptHistory) -> EntityHealth:
        return await lease(self._context, self._entity, self._deadline, last=history.last_error)

    def _refuse(self, part: Part) -> None:
        [message] = part.messages
        verdict = part.history.last_error
        assert verdict is not None  # noqa: S101 - for the type checker
        _log.warning("entity=%s refuses one message and takes others: %s", self._entity, verdict)
        self._executor.state.refuse(message, verdict)

    async def _divert(self, part: Part) -> list[Part]:
        """Send a part to the backlog; return what is left because the entity failed back meanwhile."""
        try:
            left = await self._backlog.send(
                part.messages, self._executor, because=part.history.last_error, deadline=self._deadline
            )
        except (NoBacklogQueueError, SendTimeoutError) as error:
            part.history = part.history.not_diverted(error)
            left = [each for each in part.messages if each.status is MessageStatus.QUEUED]
        return [Part(left, None, part.history.part())] if left else []

    async def _spool(self, part: Part) -> list[Part]:
        """Write a part to the spool; return what is left because the route of the entity changed meanwhile."""
        history, spool = part.history, self._context.spool
        try:
            if self._policy.ordered:
                part.messages = [each for each in part.messages if self._fits_backlog(each)]
                if not part.messages:
                    return []
            else:
                self._backlog.try_again()
            if not self._policy.ordered or await self._is_route_to_spool(history):
                assert spool is not None  # noqa: S101 - for the type checker
                link = self._sender.link
                limit = max(link.max_batch_bytes, link.max_message_bytes)
                await self._executor.spool(part.messages, spool, max_bytes=limit)
                return []
        except TimedOutError as error:
            _log.info("entity=%s: a write to the spool was ended: %s", self._entity, error)
        except SpoolError as error:
            if isinstance(error, FileFullError) and len(part.messages) > 1:
                return await self.execute(part, Split())
            reason = history.backlog_error or history.last_error
            why = "" if reason is None else f" ({reason})"
            raise NoBacklogQueueError(
                f"neither namespace takes messages for {self._entity}{why}, nor does the spool: {error}",
                cause=error if reason is None else reason,
                result=SendResult(),
                unsent=(),
            ) from error
        return [Part(part.messages, None, replace(history.part(), backlog_error=None))]

    def _fits_backlog(self, tracked: TrackedMessage) -> bool:
        """Return whether the backlog can take a message, where it goes with session order; else refuse it."""
        try:
            checked_copy(tracked.message, entity=self._entity)
        except MessageTooLargeError as error:
            self._executor.state.refuse(tracked, error)
            return False
        return True

    async def _is_route_to_spool(self, history: AttemptHistory) -> bool:
        """With session order, return whether all processes send messages of the entity to the spool of this one.

        That holds at the moment of the return: nothing may be waited for before the write begins.

        :raises SpoolError: they go to another spool, or the processes could not agree.
        """
        spool = self._context.spool
        name, begin = None if spool is None else await spool.name(), None
        if name is not None and history.backlog_error is not None:
            begin = BeginSpool(name, f"no backlog queue takes messages: {history.backlog_error.cause}")
        health = await self._lease(history)
        for _ in range(_MAX_WRITES):
            if begin is None or health.spool or health.epoch != history.epoch:
                break
            # Again if it was not written, or a process that had not read it wrote over it.
            self._registry.apply(self._entity, begin)
            health = await self._lease(history)
        chosen = health.spool
        if chosen and chosen != name:
            raise SpoolError(
                f"to keep the order of sessions, its messages go behind those in the spool {chosen}, and this process "
                f"has {'no spool' if name is None else f'the spool {name}'}; empty that one where it can be seen"
            )
        if not chosen and health.epoch == history.epoch:
            raise SpoolError("the other processes could not be told, because its health was not changed")
        return bool(chosen)
