"""The failover-aware sender (SPEC section 4): asks health where to go, packs, sends, diverts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Self, TypeAlias

from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.account import Account
from servicebus_pair.core.batching import Packer, partition_key
from servicebus_pair.core.clients import Turn
from servicebus_pair.core.deadline import Deadline
from servicebus_pair.core.divert import Divert
from servicebus_pair.core.errors import (
    SendCancelledError,
    SendError,
    ServerBusyError,
    ServiceError,
    UnreachableError,
)
from servicebus_pair.core.events import MessagesAccepted, Route
from servicebus_pair.core.failures import counts
from servicebus_pair.core.health import SendFailed, SendSucceeded
from servicebus_pair.core.intake import Intake, Message, Messages
from servicebus_pair.core.patience import FIRST_PAUSE, attempt_seconds, interval_left, next_pause
from servicebus_pair.core.pile import Pile
from servicebus_pair.core.results import SendResult
from servicebus_pair.core.shared import SMALLEST_BATCH_LIMIT, Shared
from servicebus_pair.core.wire import WireBatch

__all__ = ["Message", "PairSender"]

_log = logging.getLogger(__name__)
_Load: TypeAlias = WireBatch | Pile


def _nothing() -> None:
    """Stand in where nobody needs to know."""


class PairSender:
    """Sends to one queue or topic of the primary, or to the backlog while that is failed over.

    Made by ``NamespacePair.sender``; an asynchronous context manager. Guarantee: a message for
    which :meth:`send` returned is on the primary or in a backlog queue, at least once.
    """

    def __init__(self, entity: str, shared: Shared) -> None:
        self.entity = entity
        self._shared = shared
        self._board = shared.board
        self._clock = shared.clock
        self._link = shared.primary.send_link(entity)
        self._divert = Divert(entity, shared)
        self._batch_limit = SMALLEST_BATCH_LIMIT

    async def __aenter__(self) -> Self:
        await self._learn()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._board.flush()

    async def send(self, messages: Messages, *, timeout: float | None = None) -> SendResult:
        """Send one message or many; large inputs are streamed, packed by bytes.

        A message without an id is given one. The messages themselves are not changed otherwise.

        However it ends, the state is defined: each message taken from the caller is accepted (in
        ``result``, by route), or unsent, and then in doubt or not. What a collection still holds
        is unsent; an iterator stays where it stands.

        :param messages: a message, or an (asynchronous) iterable of messages.
        :param timeout: seconds for the whole call, kept to half a second; ``None`` waits as long as
            it takes, which is at most about ``failover_interval`` plus the time the backlog needs,
            and longer only while the service answers that it is busy.
        :returns: counts by route, backlog queues and ids.
        :raises InvalidMessageError: ``messages`` is none of these; nothing was taken.
        :raises SendTimeoutError: the time was over first; as every ``SendError``, it carries the unsent messages.
        :raises SendError: not everything was accepted, because of ``cause``: a failure of the
            service, of an observer, or of the caller's iterable.
        :raises CancelledError: the send was cancelled; ``account_of`` answers the ``SendCancelledError`` behind it.
        """
        account = Account()
        # The link's limit is asked for when the first batch is opened.
        packer: Packer[_Load] = Packer(self._open_load, key=partition_key)
        intake = Intake(messages)
        packing: list[AmqpAnnotatedMessage] = []
        try:
            await self._pour(intake, packer, packing, account, Deadline(self._clock, timeout=timeout))
        except (asyncio.CancelledError, Exception) as error:
            handed = list(account.in_hand.values())
            packed = [message for batch in packer.open_batches() for message in batch.messages]
            ended = self._ended(error, account, [*handed, *packed, *packing, *intake.rest()])
            if isinstance(error, asyncio.CancelledError):
                # Exactly this class: asyncio.timeout takes no other for the cancellation that it asked for.
                raise asyncio.CancelledError(*error.args) from ended
            raise ended from error
        return account.result()

    async def _pour(
        self,
        intake: Intake,
        packer: Packer[_Load],
        packing: list[AmqpAnnotatedMessage],
        account: Account,
        deadline: Deadline,
    ) -> None:
        """Deliver all that ``intake`` gives; ``packing`` holds the message that is in no batch yet."""
        async for message in intake:
            packing.append(message)
            if not packer.open_batches():
                await self._learn_limit(deadline)
            full = packer.add(message)
            packing.clear()
            if full is not None:
                await self._deliver(full, account, deadline)
        for batch in packer.rest():
            await self._deliver(batch, account, deadline)

    def _ended(self, error: BaseException, account: Account, unsent: list[AmqpAnnotatedMessage]) -> SendError:
        result, in_doubt = account.result(), account.in_doubt
        where = (
            f"sending to {self.entity} ended with {result.primary} messages on the primary, {result.diverted} in "
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

    async def _learn(self) -> None:
        """Take over shared health; a stale "failed over" is pinged once before it is believed."""
        health = await self._board.refresh(self.entity)
        if not health.failed_over:
            return
        seen = health.since if health.last_ping is None else health.last_ping
        if self._clock.now() - seen >= self._shared.options.ping_primary_interval.total_seconds():
            await self._shared.prober.ping(self.entity)

    async def _learn_limit(self, deadline: Deadline) -> None:
        """Ask the link for its batch limit, which an attached one knows, unless the primary cannot be asked now."""
        trial = _Trial()
        try:
            limit = await self._link.open_in_turn(self._turn(trial, deadline))
        except ServiceError as error:
            self._raise_if_final(error)
            deadline.left(last=error)
            if counts(error, self._shared.options):
                self._board.apply(self.entity, SendFailed(str(error), trial.since or self._clock.now()))
        else:
            self._batch_limit = self._batch_limit if limit is None else limit

    def _open_load(self) -> _Load:
        return Pile() if self._board.current(self.entity).failed_over else WireBatch(self._batch_limit)

    async def _deliver(self, load: _Load, account: Account, deadline: Deadline) -> None:
        """Bring messages to the primary or, once the entity is failed over, to the backlog."""
        account.take_in_hand(load.messages)
        trial = _Trial()
        first = 0
        for batch in self._batches(load):
            numbers = range(first, first + len(batch))
            if not await self._to_primary(batch, numbers, account, trial, deadline):
                break
            first += len(batch)
        if account.in_hand:
            await self._divert.deliver(account, because=trial.last, deadline=deadline)

    def _batches(self, load: _Load) -> Iterator[WireBatch]:
        """The batches of a load, in order; one that waited for the backlog is packed when the primary is back."""
        if isinstance(load, WireBatch):
            yield load
            return
        packer = Packer(lambda: WireBatch(self._batch_limit), key=partition_key)
        for message in load.messages:
            if self._board.current(self.entity).failed_over:
                break
            full = packer.add(message)
            if full is not None:
                yield full
        yield from packer.rest()

    async def _to_primary(
        self, batch: WireBatch, numbers: range, account: Account, trial: _Trial, deadline: Deadline
    ) -> bool:
        """Send one batch, again and again while the entity is suspect; False once it is failed over."""
        while not self._board.current(self.entity).failed_over:
            try:
                sent = await self._attempt(batch, numbers, account, trial, deadline)
            except ServiceError as error:
                trial.last = error
                self._raise_if_final(error)
                await self._failed(error, trial, deadline)
            else:
                if sent:
                    self._accepted(batch, numbers, account)
                    return True
        return False

    async def _attempt(
        self, batch: WireBatch, numbers: range, account: Account, trial: _Trial, deadline: Deadline
    ) -> bool:
        """Send once; False when the entity failed over while the send waited for its turn on the link."""
        before = account.doubted
        turn = self._turn(trial, deadline, starting=lambda: account.doubt(numbers))
        try:
            return await self._link.send_in_turn(batch, turn)
        except ServiceError as error:
            if not error.may_be_stored:
                account.refused(before)
            raise

    def _turn(self, trial: _Trial, deadline: Deadline, *, starting: Callable[[], None] = _nothing) -> Turn:
        """An attempt that is left once the entity failed over, and ends with the failover interval."""

        def seconds() -> float | None:
            if self._board.current(self.entity).failed_over:
                return None
            trial.begin(self._clock.now(), attached=self._link.attached)
            return min(attempt_seconds(self._interval_left(trial)), deadline.left(last=trial.last))

        return Turn(seconds=seconds, starting=starting, patience=deadline.left(last=trial.last))

    async def _failed(self, error: ServiceError, trial: _Trial, deadline: Deadline) -> None:
        """Decide what a failure that may pass means for the entity, and wait before the next attempt."""
        left = deadline.left(last=error)
        if isinstance(error, ServerBusyError):
            trial.since = None
            delay = self._shared.options.server_busy_delay.total_seconds()
            if delay > left:
                raise deadline.over(last=error)
            await self._board.wait_for_change(self.entity, seconds=delay)
            return
        if isinstance(error, UnreachableError) and trial.forgive():
            return
        self._board.apply(self.entity, SendFailed(str(error), trial.since or self._clock.now()))
        if not self._board.current(self.entity).failed_over:
            pause = min(trial.pause, self._interval_left(trial), left)
            await self._board.wait_for_change(self.entity, seconds=pause)
            trial.pause = next_pause(trial.pause)

    def _accepted(self, batch: WireBatch, numbers: range, account: Account) -> None:
        self._board.apply(self.entity, SendSucceeded())
        account.accept(numbers, route=Route.PRIMARY, queue=None, refs=batch.refs)
        at = self._clock.now()
        self._board.tell(MessagesAccepted(self.entity, Route.PRIMARY, None, tuple(batch.refs), at))

    def _raise_if_final(self, error: ServiceError) -> None:
        if not (error.retriable or counts(error, self._shared.options)):
            raise error

    def _interval_left(self, trial: _Trial) -> float:
        return interval_left(
            self._board.current(self.entity),
            interval=self._shared.options.failover_interval.total_seconds(),
            now=self._clock.now(),
            failing_since=trial.since,
        )


class _Trial:
    """The attempts of one batch on the primary."""

    def __init__(self) -> None:
        self.last: ServiceError | None = None
        self.pause = FIRST_PAUSE
        self.since: float | None = None
        self._was_attached = False
        self._forgiven = False

    def begin(self, now: float, *, attached: bool) -> None:
        """An attempt begins. A failure counts from the first attempt that failed, the forgiven one included."""
        self.since = now if self.since is None else self.since
        self._was_attached = attached

    def forgive(self) -> bool:
        """Answer True for the first loss of a link that had worked: it is tried again at once."""
        if self._forgiven or not self._was_attached:
            return False
        self._forgiven = True
        return True
