"""The way to the backlog: copies, a backlog queue of the rotation, the next one when it fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from itertools import islice
from typing import Any, Final

from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.account import Account
from servicebus_pair.core.batching import Packer, partition_key
from servicebus_pair.core.deadline import Deadline
from servicebus_pair.core.envelope import wrap
from servicebus_pair.core.errors import (
    InvalidMessageError,
    MessageTooLargeError,
    NoBacklogQueueError,
    PairError,
    ServerBusyError,
    ServiceError,
    TimedOutError,
    UnreachableError,
)
from servicebus_pair.core.events import BacklogTooSmall, MessagesAccepted, QueuePulled, Route
from servicebus_pair.core.patience import LONGEST_ATTEMPT
from servicebus_pair.core.results import SendResult
from servicebus_pair.core.search import Search, search_seconds
from servicebus_pair.core.send_link import SendLink, Turn
from servicebus_pair.core.shared import SMALLEST_BATCH_LIMIT, Shared
from servicebus_pair.core.size import growth, is_large
from servicebus_pair.core.wire import WireBatch, encoded_size

__all__ = ["Divert"]

_log = logging.getLogger(__name__)
_TRIES_IN_ORDER: Final = 3
_MOST_BESIDE: Final = 16


def _nothing() -> None:
    """Stand in where nobody needs to know."""


class Divert:
    """Delivers messages of one entity to a backlog queue; each sender has its own and keeps its queue."""

    def __init__(self, entity: str, shared: Shared) -> None:
        self._entity = entity
        self._shared = shared
        self._queue: str | None = None
        self._beside_sends: set[asyncio.Task[Any]] = set()

    def prepare(self) -> None:
        """Open the link to a backlog queue beside the send: the entity may fail over at any time now."""
        self._queue = self._shared.rotation.choose(self._queue)
        if self._queue is not None and not self._shared.secondary.send_link(self._queue).attached:
            self._beside(self._open(self._queue), "prepare the divert")

    async def _open(self, queue: str) -> SendLink | None:
        link = self._shared.secondary.send_link(queue)
        try:
            await link.open(timeout=LONGEST_ATTEMPT)
        except PairError as error:
            _log.debug("backlog queue=%s cannot be opened now: %s", queue, error)
            return None
        return link

    def _beside(self, work: Coroutine[Any, Any, Any], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._beside_sends.add(task)
        task.add_done_callback(self._beside_sends.discard)

    def consider(self, batch: WireBatch) -> None:
        """Warn, beside the send, of messages of a healthy entity that the backlog would not take."""
        limit = SMALLEST_BATCH_LIMIT
        for message, ref in zip(batch.messages, batch.refs, strict=True):
            if is_large(ref.size_bytes, limit=limit):
                try:
                    size, more = encoded_size(message), growth(message, entity=self._entity)
                except InvalidMessageError as error:
                    _log.warning("entity=%s: in an outage its send would fail: %s", self._entity, error)
                    continue
                # What fits there fits any tier; and while the backlog does not answer, a few wait to be warned of.
                if size + more > limit and len(self._beside_sends) < _MOST_BESIDE:
                    self._beside(self._warn(ref.message_id, size, more), "consider the backlog")

    async def _warn(self, message_id: str, size: int, more: int) -> None:
        queue = self._shared.rotation.choose(self._queue)
        if queue is None:
            return
        link = await self._open(queue)
        if link is None:
            return
        limit = max(link.batch_limit, link.message_limit)
        if size + more > limit:
            _log.warning(
                "entity=%s message=%s fits with %d bytes, its backlog copy takes %d more: the limit there is %d",
                self._entity,
                message_id,
                size,
                more,
                limit,
            )
            event = BacklogTooSmall(self._entity, message_id, size, more, limit, self._shared.clock.now())
            self._shared.board.mention(event)

    async def deliver(self, account: Account, *, because: ServiceError | None, deadline: Deadline) -> None:
        """Send copies of what ``account`` has in hand to the backlog: all of them, or an error is raised.

        What was accepted before the error is in the account.

        :param because: the primary's failure that led here, if this send saw it.
        :raises NoBacklogQueueError: no backlog queue took them; names both failures.
        :raises SendTimeoutError: the deadline came first.
        :raises ServiceError: a copy does not fit the backlog, or the SDK refused it.
        """
        copies = {number: wrap(message, entity=self._entity) for number, message in account.in_hand.items()}
        order = self._shared.order
        if order is not None:
            for home, part in order.split(self._entity, copies, dict(account.in_hand)).items():
                await self._keep_to(home, part, account, because=because, deadline=deadline)
            return
        tried: set[str] = set()
        forgiven: set[str] = set()
        last: ServiceError | None = None
        search = self._search(deadline)
        while copies:
            deadline.left(last=last)
            queue = self._shared.rotation.choose(self._queue, without=tried)
            if queue is None or search.over:
                self._shared.rotation.silent = search.over
                raise self._exhausted(because, last, len(copies), tried=len(tried))
            self._queue = queue
            tried.add(queue)
            had_worked = self._shared.secondary.send_link(queue).attached
            search.begin()
            try:
                for batch in await self._pack(queue, copies, search):
                    await self._send(queue, batch, copies, account, search)
            except MessageTooLargeError as error:
                raise MessageTooLargeError(f"as a copy for the backlog, {error}") from error
            except InvalidMessageError:
                raise
            except ServiceError as error:
                search.failed()
                last = error
                if await self._stays(queue, error, forgive=had_worked and queue not in forgiven, deadline=deadline):
                    tried.discard(queue)
                forgiven.add(queue)

    async def _keep_to(
        self,
        queue: str,
        copies: dict[int, AmqpAnnotatedMessage],
        account: Account,
        *,
        because: ServiceError | None,
        deadline: Deadline,
    ) -> None:
        """In session order: send to this queue or to none."""
        failures = 0
        search = self._search(deadline)
        while copies:
            deadline.left(last=because)
            search.begin()
            try:
                for batch in await self._pack(queue, copies, search):
                    await self._send(queue, batch, copies, account, search)
            except (MessageTooLargeError, InvalidMessageError):
                raise
            except ServiceError as error:
                search.failed()
                if await self._wait_if_busy(error, deadline):
                    continue
                failures += 1
                if failures == _TRIES_IN_ORDER or search.over:
                    self._shared.rotation.silent = search.over
                    raise self._exhausted(because, error, len(copies), tried=1) from error
                _log.warning("backlog queue=%s, to which these sessions keep, failed: %s", queue, error)

    async def _stays(self, queue: str, error: ServiceError, *, forgive: bool, deadline: Deadline) -> bool:
        """Answer whether a queue that failed is tried again; else it leaves the rotation.

        :param forgive: the loss of a connection that had worked: as on the primary, one is no verdict.
        """
        if await self._wait_if_busy(error, deadline) or (forgive and isinstance(error, UnreachableError)):
            return True
        self._pull(queue, error)
        return False

    async def _wait_if_busy(self, error: ServiceError, deadline: Deadline) -> bool:
        """Sit out the pause that a busy service asks for; False if it was another error."""
        if not isinstance(error, ServerBusyError):
            return False
        delay = self._shared.options.server_busy_delay.total_seconds()
        if delay > deadline.left(last=error):
            raise deadline.over(last=error)
        await self._shared.clock.sleep(delay)
        return True

    def _search(self, deadline: Deadline) -> Search:
        interval = self._shared.options.failover_interval.total_seconds()
        seconds = search_seconds(interval, silent=self._shared.rotation.silent)
        return Search(self._shared.clock, seconds=seconds, deadline=deadline)

    def _turn(self, queue: str, search: Search, *, starting: Callable[[], None] = _nothing) -> Turn:
        """An attempt on a backlog queue; left when others found out meanwhile that the queue does not answer."""
        rotation = self._shared.rotation
        pulled, silent = rotation.is_pulled(queue), rotation.silent

        def seconds() -> float | None:
            if (rotation.is_pulled(queue) and not pulled) or (rotation.silent and not silent):
                return None
            # Waiting for a link that is busy is no silence of the queue.
            search.begin()
            return search.seconds()

        return Turn(seconds=seconds, starting=starting, patience=search.deadline.left())

    def _left_turn(self, queue: str, search: Search) -> ServiceError:
        """Why a turn was left: the time is over, or others found out that the queue does not answer."""
        search.deadline.left()
        return TimedOutError(f"waiting for {queue}: it did not answer others meanwhile")

    async def _pack(self, queue: str, copies: Mapping[int, AmqpAnnotatedMessage], search: Search) -> list[WireBatch]:
        link = self._shared.secondary.send_link(queue)
        limit = await link.open_in_turn(self._turn(queue, search))
        if limit is None:
            raise self._left_turn(queue, search)
        packer: Packer[WireBatch] = Packer(partial(WireBatch, limit, largest=link.message_limit), key=partition_key)
        full = [packer.add(copy) for copy in copies.values()]
        return [*(batch for batch in full if batch is not None), *packer.rest()]

    async def _send(
        self,
        queue: str,
        batch: WireBatch,
        copies: dict[int, AmqpAnnotatedMessage],
        account: Account,
        search: Search,
    ) -> None:
        # A load has one partition key, and packing keeps the order within one.
        numbers = list(islice(copies, len(batch)))
        before = account.doubted
        turn = self._turn(queue, search, starting=lambda: account.doubt(numbers))
        try:
            sent = await self._shared.secondary.send_link(queue).send_in_turn(batch, turn)
        except ServiceError as error:
            if not error.may_be_stored:
                account.refused(before)
            raise
        if not sent:
            raise self._left_turn(queue, search)
        search.begin()
        self._shared.rotation.silent = False
        account.accept(numbers, route=Route.BACKLOG, queue=queue, refs=batch.refs)
        for number in numbers:
            del copies[number]
        at = self._shared.clock.now()
        self._shared.board.tell(MessagesAccepted(self._entity, Route.BACKLOG, queue, tuple(batch.refs), at))

    def _pull(self, queue: str, error: ServiceError) -> None:
        if self._shared.rotation.pull(queue):
            _log.warning("backlog queue=%s leaves the rotation: %s", queue, error)
            self._shared.board.mention(QueuePulled(queue, str(error), self._shared.clock.now()))

    def _exhausted(
        self, because: ServiceError | None, last: ServiceError | None, waiting: int, *, tried: int
    ) -> NoBacklogQueueError:
        health = self._shared.board.current(self._entity)
        primary = health.reason if because is None else str(because)
        cause = last if last is not None else because
        return NoBacklogQueueError(
            f"{self._entity} is failed over ({primary}) and no backlog queue took the "
            f"{waiting} messages (tried {tried}, the last one: {last}): they are in .unsent; "
            "provision the backlog or try again",
            cause=TimedOutError("no backlog queue is configured") if cause is None else cause,
            result=SendResult(),
            unsent=(),
        )
