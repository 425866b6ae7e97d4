"""The syphon (SPEC section 6): empties the backlog queues into their entities on the primary.

At least once: a message whose completion is not confirmed may come again, and is counted as a
possible duplicate. Several syphons may run at once, in processes that do not know each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

from servicebus_pair.core.dispatch import Tally
from servicebus_pair.core.errors import AuthorizationError, EntityNotFoundError, ServiceError
from servicebus_pair.core.mover import Mover
from servicebus_pair.core.progress import Progress
from servicebus_pair.core.refusals import Refusals, explain_queue
from servicebus_pair.core.rests import FAILURES_BEFORE_GIVING_UP, rest_seconds
from servicebus_pair.core.results import DrainReport
from servicebus_pair.core.survey import BacklogSurvey, Surveyor
from servicebus_pair.core.workshop import Workshop

__all__ = ["Syphon"]

_log = logging.getLogger(__name__)
# An empty answer costs a drain so long; what it means is found out by peeking.
_SHORT_WAIT_SECONDS: Final = 0.3
# A queue that rests longer gives back what it has in hand.
_LONG_REST_SECONDS: Final = 10.0
_FIRST_PAGE: Final = 5
# What is left but not received is locked by another syphon; a dead one's locks end within the
# minute of the queue's LockDuration.
_PATIENCE_SECONDS: Final = 65.0
# So many messages of resting destinations are stepped over before the queue itself rests.
_STEPPED_OVER: Final = 1000
# While a destination rests longer, what is new for others is looked for as often as this.
_LONGEST_QUEUE_REST: Final = 30.0
# What another syphon has locked is asked for as often as this.
_LONGEST_LOCK_REST: Final = 5.0
# So many links are busy at a time, over all queues; more gain nothing in one process.
_LINKS: Final = 8
_SHORTEST_REST: Final = 0.05
# What a stop lets run on: receives that end by themselves, sends whose answer is near.
_GRACE_SECONDS: Final = 1.5
# No waiting mends these.
_FINAL: Final = (AuthorizationError, EntityNotFoundError)


class Syphon:
    """Moves the messages of some backlog queues; made by ``NamespacePair.syphon``.

    One call of :meth:`drain` or :meth:`run` at a time.

    :param queues: paths of backlog queues on the secondary.
    :param first_rest: seconds of the first rest after a failure.
    :param long_poll: seconds of one receive of a continuous syphon.
    :param count: answers how many messages the queues hold, as far as this process may know.
    """

    def __init__(
        self,
        shop: Workshop,
        queues: Sequence[str],
        *,
        first_rest: float,
        long_poll: float,
        count: Callable[[Collection[str]], Awaitable[int]],
    ) -> None:
        self._shop = shop
        self._queues = tuple(queues)
        self._first_rest = first_rest
        self._long_poll = long_poll
        self._count = count
        self._lasting = False
        self._refused = Refusals()
        self._began = shop.clock.now()
        self._links = 0 if shop.ordered else _LINKS
        self._busy: set[str] = set()
        self._leaving: set[asyncio.Task[Any] | None] = set()
        self._helping = 0
        self._tallies: dict[str, Tally] = {}
        self._tell: Callable[[DrainReport], None] | None = None
        self._going = asyncio.Event()
        self._going.set()
        self._stopped = asyncio.Event()

    @property
    def rate(self) -> float | None:
        """Most messages a second, over all queues; may be changed at any time. ``None`` for no limit."""
        return self._shop.throttle.rate

    @rate.setter
    def rate(self, rate: float | None) -> None:
        self._shop.throttle.rate = rate

    def pause(self) -> None:
        """Take no more messages until :meth:`resume`; what is in hand is settled first."""
        self._shop.held = True
        self._going.clear()

    def resume(self) -> None:
        """Go on after :meth:`pause`."""
        self._shop.held = False
        self._going.set()

    def stop(self) -> None:
        """End :meth:`drain` or :meth:`run`; what the primary has confirmed is settled, the rest released.

        Within about six seconds, whatever the two namespaces do.
        """
        self._shop.held = True
        self._stopped.set()
        self._going.set()

    def report(self) -> DrainReport:
        """Answer what was done so far."""
        total = sum((tally.report() for tally in self._tallies.values()), DrainReport())
        return total + DrainReport(failures=self._shop.rests.errors())

    async def progress(self) -> Progress:
        """Answer how far it is, and how long the rest will take; the rest is one management call.

        Without the right to manage the secondary, what remains is unknown.
        """
        report = self.report()
        remaining: int | None = None
        try:
            remaining = await self._count(self._queues)
        except ServiceError as error:
            _log.info("what remains in the backlog cannot be counted: %s", error)
        return Progress(
            moved=report.moved_total,
            dead_lettered=sum(report.dead_lettered.values()),
            seconds=self._shop.clock.now() - self._began,
            remaining=remaining,
        )

    async def survey(self, *, first_page: bool = False) -> BacklogSurvey:
        """Dry run: answer what the queues hold for each destination, by peeking; nothing is locked or moved.

        :param first_page: look at the oldest messages of each queue only, ``syphon_batch_size`` of them.
        :raises ServiceError: a queue cannot be read.
        """
        surveyor = Surveyor(self._shop)
        looking = (surveyor.survey(queue, first_page=first_page) for queue in self._queues)
        return BacklogSurvey.total(await asyncio.gather(*looking))

    async def drain(self, *, progress: Callable[[DrainReport], None] | None = None) -> DrainReport:
        """Move messages until every queue is empty, or what is left cannot be moved now.

        The end is found by looking, not by counting down from what was there at the start. Empty is
        believed only when a peek answers that nothing is there, since a frozen service answers a
        receive with nothing too. Messages that another syphon has locked are waited for, up to 65 s
        without progress. A destination or queue that fails rests for ``syphon_retry_interval``,
        doubling; after five failures in a row it is left as it is. One that refuses from the start (a right
        is missing, the queue does not exist) is left at once, and if nothing could be moved for it, that is the error.

        :param progress: called after each step with the sum so far.
        :raises AuthorizationError: the right Listen on a queue, or Send on an entity, is missing; nothing was moved.
        :raises EntityNotFoundError: a backlog queue does not exist; nothing was moved.
        """
        self._begin(progress, forever=False)
        await self._until_stopped(forever=False)
        report = self.report()
        refusals = [*self._refused.errors.values(), *self._shop.refused.errors.values()]
        if refusals and not report.moved and not report.dead_lettered:
            raise refusals[0]
        _log.info(
            "drain queues=%d moved=%d dead_lettered=%d left=%d duplicates_possible=%d",
            len(self._queues),
            report.moved_total,
            sum(report.dead_lettered.values()),
            report.left,
            report.duplicates_possible,
        )
        return report

    async def run(self, *, progress: Callable[[DrainReport], None] | None = None, lasting: bool = False) -> DrainReport:
        """Move messages until :meth:`stop`, polling each queue for ``syphon_long_poll``.

        Cancelling the task stops it too; messages in hand that the primary did not confirm are released.
        A right or a queue that is missing is an error from the start, and waited for once a queue and an entity worked.

        :param progress: called after each step with the sum so far.
        :param lasting: wait for it from the start too: somebody may provision, or give the right, meanwhile.
        :raises AuthorizationError: the right Listen on every queue, or Send on every entity so far, is missing.
        :raises EntityNotFoundError: no backlog queue exists.
        """
        self._begin(progress, forever=True)
        self._lasting = lasting
        await self._until_stopped(forever=True)
        return self.report()

    def _begin(self, progress: Callable[[DrainReport], None] | None, *, forever: bool) -> None:
        self._tell = progress
        self._shop.forever = forever
        self._refused, self._shop.refused = Refusals(), Refusals()
        self._shop.rests.pardon()
        self._stopped.clear()
        self._leaving.clear()
        self._shop.held = not self._going.is_set()
        self._began = self._shop.clock.now()
        self._tallies = {queue: Tally() for queue in self._queues}

    async def _until_stopped(self, *, forever: bool) -> None:
        """Work on all queues; a stop cancels that, which settles what was confirmed and releases the rest."""
        work = [
            asyncio.create_task(self._work(queue, forever=forever), name=f"syphon {queue}") for queue in self._queues
        ]
        stopped = asyncio.create_task(self._stopped.wait())
        try:
            done: set[asyncio.Task[Any]] = set()
            while not stopped.done() and not set(work) <= done:
                waiting = [*(task for task in work if task not in done), stopped]
                done |= (await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED))[0]
                for task in done - {stopped}:
                    task.result()
        finally:
            stopped.cancel()
            self.stop()
            # A cancelled receive costs the link, by which alone what came over it can be released at once. Held, it
            # ends by itself.
            await asyncio.wait(work, timeout=_GRACE_SECONDS)
            for task in set(work) - self._leaving:
                task.cancel()
            for task in (await asyncio.wait(work))[0]:
                if not task.cancelled():
                    task.exception()  # the first one is raised; the others tell the same

    async def _work(self, queue: str, *, forever: bool) -> None:
        tally = self._tallies[queue]
        mover = Mover(self._shop, queue, tally=tally)
        helpers: set[asyncio.Task[None]] = set()
        round_ = _Round(self._shop.clock.now(), forever=forever)
        try:
            while not await self._is_over(mover, round_, forever=forever):
                await self._pass_gate(mover)
                taken = await self._step(mover, round_, self._long_poll if forever else _SHORT_WAIT_SECONDS)
                if self._wants_help(queue, taken, plenty=taken >= mover.hand > 1):
                    helpers.add(helper := asyncio.create_task(self._help(mover.twin()), name=f"syphon {queue}"))
                    helper.add_done_callback(helpers.discard)
                await self._rest(mover, round_)
            if helpers:
                await asyncio.wait(set(helpers))
        finally:
            # What gives back what it has is bounded, and not to be cancelled in the middle of that.
            self._leaving.add(asyncio.current_task())
            self._busy.discard(queue)
            for helper in set(helpers):
                helper.cancel()
            await asyncio.gather(*helpers, return_exceptions=True)
            await mover.detach()

    def _wants_help(self, queue: str, taken: int, *, plenty: bool) -> bool:
        """Answer whether one more link to ``queue`` is worth it: queues of unequal length end together."""
        (self._busy.add if taken else self._busy.discard)(queue)
        return plenty and len(self._busy) + self._helping < self._links

    async def _help(self, mover: Mover) -> None:
        """Work over one more link for as long as there is plenty."""
        self._helping += 1
        try:
            while await mover.step(wait=_SHORT_WAIT_SECONDS):
                self._told()
                if mover.parked or mover.ran_short or self._shop.held:
                    break
        except ServiceError as error:
            _log.warning("syphon queue=%s, one more link: %s", mover.queue, error)
        finally:
            self._helping -= 1
            await mover.detach()

    async def _step(self, mover: Mover, round_: _Round, wait: float) -> int:
        """One step of ``mover``; a failure of the queue itself is noted."""
        done, now = mover.tally.done, self._shop.clock.now
        began = now()
        if mover.parked:
            wait = _SHORT_WAIT_SECONDS
        taken = 0
        try:
            taken = await mover.step(wait=wait)
            round_.waited = taken == 0 and now() - began > wait / 2 > _SHORT_WAIT_SECONDS
            if round_.waited:
                # A link that died silently receives nothing either; a new one tells.
                await mover.detach()
        except ServiceError as error:
            self._note_failure(mover, round_, explain_queue(error, mover.queue))
        else:
            round_.failed = 0
            mover.tally.failures.pop(mover.queue, None)
            self._refused.works(mover.queue)
        round_.note(taken, moved=mover.tally.done > done, ran_short=mover.ran_short, now=now())
        self._told()
        if round_.forever and not self._lasting:
            self._check_refusals()
        return taken

    def _note_failure(self, mover: Mover, round_: _Round, error: ServiceError) -> None:
        mover.tally.failures[mover.queue] = str(error)
        round_.failed += 1
        round_.waited = False
        if isinstance(error, _FINAL) and self._refused.note(mover.queue, error):
            round_.refused = not round_.forever

    def _check_refusals(self) -> None:
        """:raises ServiceError: everything tried so far was refused."""
        queues, destinations = self._refused.errors, self._shop.refused
        if len(queues) == len(set(self._queues)):
            raise next(iter(queues.values()))
        if destinations.errors and not destinations.anything_worked:
            raise next(iter(destinations.errors.values()))

    async def _is_over(self, mover: Mover, round_: _Round, *, forever: bool) -> bool:
        if self._stopped.is_set():
            return True
        if forever or round_.hopeful:
            return False
        if round_.refused or round_.failed >= FAILURES_BEFORE_GIVING_UP:
            return True
        try:
            workable = await self._look(mover, round_)
        except ServiceError:
            # The queue may hold something that cannot be decoded; a step finds out.
            return False
        return not workable or self._shop.clock.now() - round_.moved_at > _PATIENCE_SECONDS

    async def _look(self, mover: Mover, round_: _Round) -> bool:
        """Peek whether anything is left that could be moved, first where it was found last."""
        if round_.found > 1 and await self._find(mover, round_):
            return True
        round_.found = 1
        return await self._find(mover, round_)

    async def _find(self, mover: Mover, round_: _Round) -> bool:
        """Peek from where something was found last; counts what is left there, at least a page."""
        first, left, most = round_.found, 0, _FIRST_PAGE
        while page := await mover.peek(first, most=most):
            left += sum(map(self._surveyor.is_wanted, page))
            mover.tally.left = left
            found = next((each for each in page if self._surveyor.is_workable(each, mover.put_aside)), None)
            if found is not None:
                round_.found = found.sequence_number or 1
                return True
            first, most = (page[-1].sequence_number or 0) + 1, self._shop.most
        mover.tally.left = left
        return False

    @property
    def _surveyor(self) -> Surveyor:
        return Surveyor(self._shop)

    async def _pass_gate(self, mover: Mover) -> None:
        if not self._going.is_set():
            await mover.detach()
            await self._going.wait()

    async def _rest(self, mover: Mover, round_: _Round) -> None:
        """Pause when nothing could be moved: until the next rest of a destination ends, growing, at most 30 s."""
        if round_.refused:
            return
        if round_.failed:
            rest = rest_seconds(round_.failed, first=self._first_rest)
            _log.warning("syphon queue=%s rests=%.0fs: %s", mover.queue, rest, mover.tally.failures)
            await self._sleep(mover, rest)
            return
        if not round_.idle or round_.waited:
            return
        due = self._shop.rests.next_try()
        round_.all_seen = round_.all_seen or (round_.forever and due is not None and not round_.took)
        if round_.took and not self._shop.ordered and not round_.all_seen and round_.stepped_over < _STEPPED_OVER:
            return
        round_.stepped_over = 0
        seconds = rest_seconds(round_.idle, first=self._first_rest)
        if due is None:
            seconds = min(seconds, _LONGEST_LOCK_REST)
        else:
            seconds = max(_SHORTEST_REST, min(seconds, due - self._shop.clock.now(), _LONGEST_QUEUE_REST))
        if mover.parked or due is not None or round_.took or round_.idle > 1:
            await self._sleep(mover, seconds)
        while round_.all_seen and (left := self._until_next_try()) > 0 and not await self._is_more_there(mover, round_):
            await self._sleep(mover, min(left, _LONGEST_QUEUE_REST))

    async def _sleep(self, mover: Mover, seconds: float) -> None:
        if seconds > _LONG_REST_SECONDS:
            await mover.detach()
        waits = [asyncio.ensure_future(each) for each in (self._shop.clock.sleep(seconds), self._stopped.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits:
                each.cancel()

    def _until_next_try(self) -> float:
        due = None if self._stopped.is_set() else self._shop.rests.next_try()
        return 0.0 if due is None else due - self._shop.clock.now()

    async def _is_more_there(self, mover: Mover, round_: _Round) -> bool:
        """Peek for what came since all was seen: receiving would take all of that first, again."""
        try:
            page = await mover.peek(max(mover.highest, round_.peeked) + 1, most=1)
        except ServiceError:
            return True  # the next step finds out
        if page:
            round_.peeked = page[-1].sequence_number or 0
            round_.all_seen = False
        return bool(page)

    def _told(self) -> None:
        if self._tell is not None:
            self._tell(self.report())


class _Round:
    """What the steps on one queue came to lately."""

    def __init__(self, now: float, *, forever: bool) -> None:
        self.moved_at = now
        self.forever = forever
        self.failed = 0
        # For good: a drain does not try again.
        self.refused = False
        self.idle = 0
        self.stepped_over = 0
        self.took = False
        # The last step was a long poll, to the end.
        self.waited = False
        # All that the queue holds was received, and is for destinations that rest.
        self.all_seen = False
        self.peeked = 0
        # The sequence number from which on something could be moved.
        self.found = 1
        # Nothing is known yet, or the last step moved much: receiving tells more than peeking, which is quicker
        # at finding nothing.
        self.hopeful = True

    def note(self, taken: int, *, moved: bool, ran_short: bool, now: float) -> None:
        self.took = taken > 0
        self.hopeful = moved and not ran_short
        self.stepped_over += 0 if moved else taken
        if moved:
            self.moved_at, self.idle, self.all_seen = now, 0, False
        else:
            self.idle += 1
