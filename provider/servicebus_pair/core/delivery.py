"""One send from its first message to its end: packing, attempts on the primary, the divert (SPEC section 4)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable, Iterator, Sequence
from typing import TypeAlias

from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.account import Account
from servicebus_pair.core.batching import Packer, partition_key
from servicebus_pair.core.deadline import Deadline
from servicebus_pair.core.divert import Divert
from servicebus_pair.core.errors import (
    RefusedError,
    SendCancelledError,
    SendError,
    ServerBusyError,
    ServiceError,
    UnreachableError,
)
from servicebus_pair.core.events import MessagesAccepted, Route
from servicebus_pair.core.failures import counts
from servicebus_pair.core.health import SendFailed, SendSucceeded
from servicebus_pair.core.intake import Intake
from servicebus_pair.core.patience import FIRST_PAUSE, attempt_seconds, interval_left, late_seconds, next_pause
from servicebus_pair.core.pile import Pile
from servicebus_pair.core.results import SendResult
from servicebus_pair.core.send_link import SendLink, Turn
from servicebus_pair.core.shared import SMALLEST_BATCH_LIMIT, Shared
from servicebus_pair.core.splitting import by_session, is_mixed, session_key
from servicebus_pair.core.wire import WireBatch

__all__ = ["Act", "Delivery"]

_log = logging.getLogger(__name__)
_Load: TypeAlias = WireBatch | Pile

Act: TypeAlias = Callable[[WireBatch, Turn], Awaitable[bool]]
"""What is done with a batch on the primary; False when the turn was left. :raises ServiceError: classified."""


def _nothing() -> None:
    """Stand in where nobody needs to know."""


class Delivery:
    """The delivery of one send; used once.

    :param link: to the entity on the primary.
    :param divert: the way to the backlog.
    :param act: sends or schedules a batch over ``link``.
    """

    def __init__(
        self, entity: str, shared: Shared, *, link: SendLink, divert: Divert, act: Act, timeout: float | None
    ) -> None:
        self._entity = entity
        self._options = shared.options
        self._board = shared.board
        self._order = shared.order
        self._clock = shared.clock
        self._link = link
        self._divert = divert
        self._act = act
        self._deadline = Deadline(shared.clock, timeout=timeout)
        self._account = Account()
        self._packer: Packer[_Load] = Packer(self._open_load, key=self._key)
        self._packing: list[AmqpAnnotatedMessage] = []

    async def run(self, intake: Intake) -> SendResult:
        """Deliver all that ``intake`` gives.

        :raises SendError: with the account of what was accepted, unsent and in doubt.
        :raises CancelledError: the same is behind it, see ``account_of``.
        """
        try:
            await self._pour(intake)
        except (asyncio.CancelledError, Exception) as error:
            handed = list(self._account.in_hand.values())
            packed = [message for load in self._packer.open_batches() for message in load.messages]
            ended = self._ended(error, [*handed, *packed, *self._packing, *intake.rest()])
            if isinstance(error, asyncio.CancelledError):
                # Exactly this class: asyncio.timeout takes no other for the cancellation that it asked for.
                raise asyncio.CancelledError(*error.args) from ended
            raise ended from error
        return self._account.result()

    async def _pour(self, intake: Intake) -> None:
        for message in intake.rows():
            await self._pack(message)
        if intake.is_stream:
            async for message in intake.stream():
                await self._pack(message)
        for load in self._packer.rest():
            await self._deliver(load)

    async def _pack(self, message: AmqpAnnotatedMessage) -> None:
        # In no batch yet: packing it may fail.
        self._packing.append(message)
        if self._packer.is_empty and not self._link.is_open:
            await self._learn_limit()
        full = self._packer.add(message)
        self._packing.clear()
        if full is not None:
            await self._deliver(full)

    def _ended(self, error: BaseException, unsent: list[AmqpAnnotatedMessage]) -> SendError:
        result, in_doubt = self._account.result(), self._account.in_doubt
        where = (
            f"sending to {self._entity} ended with {result.primary} messages on the primary, {result.diverted} in "
            f"the backlog, {len(unsent)} unsent, {len(in_doubt)} of them in doubt"
        )
        _log.warning("%s: %s", where, type(error).__name__)
        kind, cause = SendError, error
        match error:
            case SendError():
                kind, cause = type(error), error.cause
            case asyncio.CancelledError():
                kind = SendCancelledError
        why = str(error) or type(error).__name__
        return kind(f"{where}: {why}", cause=cause, result=result, unsent=unsent, in_doubt=in_doubt)

    async def _learn_limit(self) -> None:
        """Ask the link for its limits, which an open one knows, unless the primary cannot be asked now."""
        if self._failed_over:
            return  # a ping that hangs may hold the link
        trial = _Trial()
        try:
            await self._link.open_in_turn(self._turn(trial))
        except ServiceError as error:
            self._raise_if_final(error)
            self._deadline.left(last=error)
            if counts(error, self._options):
                self._suspect(error, trial)
        finally:
            trial.end()

    @property
    def _failed_over(self) -> bool:
        return self._board.current(self._entity).failed_over

    def _open_load(self) -> _Load:
        return Pile() if self._failed_over else self._open_batch()

    def _open_batch(self) -> WireBatch:
        return WireBatch(self._link.batch_limit or SMALLEST_BATCH_LIMIT, largest=self._link.message_limit)

    async def _deliver(self, load: _Load) -> None:
        """Bring messages to the primary or, once the entity is failed over, to the backlog."""
        self._account.take_in_hand(load.messages)
        if self._order is None:
            await self._deliver_in_hand(load)
            return
        try:
            await self._order.enter(self._entity, patience=self._deadline.left(last=None))
        except TimeoutError as error:
            raise self._deadline.over(last=None) from error
        try:
            await self._deliver_in_hand(load)
        finally:
            self._order.leave(self._entity)

    async def _deliver_in_hand(self, load: _Load) -> None:
        because: ServiceError | None = None
        first = 0
        for batch in self._batches(load):
            self._divert.consider(batch)
            trial = _Trial()
            if not await self._unmixed_if_refused(batch, range(first, first + len(batch)), trial):
                because = trial.last
                break
            first += len(batch)
        if self._account.in_hand:
            await self._divert.deliver(self._account, because=because, deadline=self._deadline)

    def _batches(self, load: _Load) -> Iterator[WireBatch]:
        """The batches of a load, in order; one that waited for the backlog is packed when the primary is back."""
        if isinstance(load, WireBatch):
            yield load
            return
        # A load has one key already, so its order is kept.
        packer = Packer(self._open_batch, key=partition_key)
        for message in load.messages:
            if self._failed_over:
                break
            full = packer.add(message)
            if full is not None:
                yield full
        yield from packer.rest()

    async def _unmixed_if_refused(self, batch: WireBatch, numbers: Sequence[int], trial: _Trial) -> bool:
        """Bring one batch to the primary, in parts of one session each if it takes no mixture; False: failed over."""
        try:
            return await self._to_primary(batch, numbers, trial)
        except RefusedError:
            if not is_mixed(batch.messages):
                raise
        _log.info("entity=%s takes one session a batch: so it is sent from now on", self._entity)
        self._link.takes_mixture = False
        for part_numbers, messages in by_session(batch.messages, numbers):
            part = self._open_batch()
            for message in messages:
                part.try_add(message)
            if not await self._to_primary(part, part_numbers, trial):
                return False
        return True

    def _key(self, message: AmqpAnnotatedMessage) -> Hashable:
        return partition_key(message) if self._link.takes_mixture else session_key(message)

    async def _to_primary(self, batch: WireBatch, numbers: Sequence[int], trial: _Trial) -> bool:
        """Act on one batch, again and again while the entity is suspect; False once it is failed over."""
        while not self._failed_over:
            try:
                done = await self._attempt(batch, numbers, trial)
            except ServiceError as error:
                trial.last = error
                self._raise_if_final(error)
                await self._failed(error, trial)
            else:
                if done:
                    self._accepted(batch, numbers)
                    return True
        return False

    async def _attempt(self, batch: WireBatch, numbers: Sequence[int], trial: _Trial) -> bool:
        """Act once; False when the entity failed over while the batch waited for its turn on the link."""
        before = self._account.doubted
        turn = self._turn(trial, starting=lambda: self._account.doubt(numbers))
        try:
            return await self._act(batch, turn)
        except ServiceError as error:
            if not error.may_be_stored:
                self._account.refused(before)
            raise
        finally:
            trial.end()

    def _turn(self, trial: _Trial, *, starting: Callable[[], None] = _nothing) -> Turn:
        """An attempt that is left once the entity failed over, and ends with the failover interval."""

        def seconds() -> float | None:
            if self._failed_over:
                return None
            trial.begin(self._clock.now(), attached=self._link.attached)
            allowed = min(attempt_seconds(self._interval_left(trial)), self._deadline.left(last=trial.last))
            trial.late = asyncio.get_running_loop().call_later(late_seconds(allowed), self._divert.prepare)
            return allowed

        return Turn(
            seconds=seconds,
            wanted=lambda: not self._failed_over,
            starting=starting,
            patience=self._deadline.left(last=trial.last),
        )

    async def _failed(self, error: ServiceError, trial: _Trial) -> None:
        """Decide what a failure that may pass means for the entity, and wait before the next attempt."""
        left = self._deadline.left(last=error)
        if isinstance(error, ServerBusyError):
            trial.since = None
            delay = self._options.server_busy_delay.total_seconds()
            if delay > left:
                raise self._deadline.over(last=error)
            await self._board.wait_for_change(self._entity, seconds=delay)
            return
        if isinstance(error, UnreachableError) and trial.forgive():
            self._divert.prepare()
            return
        self._suspect(error, trial)
        if not self._failed_over:
            self._divert.prepare()
            pause = min(trial.pause, max(0.0, self._interval_left(trial)), left)
            await self._board.wait_for_change(self._entity, seconds=pause)
            trial.pause = next_pause(trial.pause)

    def _suspect(self, error: ServiceError, trial: _Trial) -> None:
        began = self._clock.now() if trial.since is None else trial.since
        self._board.apply(self._entity, SendFailed(str(error), began))

    def _accepted(self, batch: WireBatch, numbers: Sequence[int]) -> None:
        self._board.apply(self._entity, SendSucceeded())
        self._account.accept(numbers, route=Route.PRIMARY, queue=None, refs=batch.refs)
        at = self._clock.now()
        self._board.tell(MessagesAccepted(self._entity, Route.PRIMARY, None, tuple(batch.refs), at))

    def _raise_if_final(self, error: ServiceError) -> None:
        if not (error.retriable or counts(error, self._options)):
            raise error

    def _interval_left(self, trial: _Trial) -> float:
        return interval_left(
            self._board.current(self._entity),
            interval=self._options.failover_interval.total_seconds(),
            now=self._clock.now(),
            failing_since=trial.since,
        )


class _Trial:
    """The attempts of one batch on the primary."""

    def __init__(self) -> None:
        self.last: ServiceError | None = None
        self.pause = FIRST_PAUSE
        self.since: float | None = None
        self.late: asyncio.TimerHandle | None = None
        self._was_attached = False
        self._forgiven = False

    def begin(self, now: float, *, attached: bool) -> None:
        """An attempt begins. A failure counts from the first attempt that failed, the forgiven one included."""
        self.since = now if self.since is None else self.since
        self._was_attached = attached

    def end(self) -> None:
        """The attempt ended, whatever came of it."""
        if self.late is not None:
            self.late.cancel()

    def forgive(self) -> bool:
        """Answer True for the first loss of a link that had worked: it is tried again at once."""
        if self._forgiven or not self._was_attached:
            return False
        self._forgiven = True
        return True
