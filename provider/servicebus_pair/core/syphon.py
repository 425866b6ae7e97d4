"""The syphon (SPEC section 6): empties the backlog queues into their entities on the primary.

At least once: a message whose completion is not confirmed may come again, and is counted as a
possible duplicate. Several syphons may run at once, in processes that do not know each other.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from servicebus_pair.core.errors import ServiceError
from servicebus_pair.core.mover import Mover
from servicebus_pair.core.results import DrainReport
from servicebus_pair.core.shared import Shared

__all__ = ["Syphon"]

_log = logging.getLogger(__name__)
_DRAIN_WAIT_SECONDS: Final = 2.0
_LONGEST_REST_SECONDS: Final = 120.0
_FAILURES_BEFORE_GIVING_UP: Final = 5
# What is left but not received is locked by another syphon; a dead one's locks end within the
# minute of the queue's LockDuration.
_PATIENCE_SECONDS: Final = 65.0


class Syphon:
    """Moves the messages of some backlog queues.

    :param queues: paths of backlog queues on the secondary.
    """

    def __init__(self, shared: Shared, queues: Sequence[str]) -> None:
        self._shared = shared
        self._queues = tuple(queues)

    async def drain(self, *, progress: Callable[[DrainReport], None] | None = None) -> DrainReport:
        """Move messages until every queue is empty or has failed five times in a row.

        Empty is believed only when a peek answers that nothing is there, since a frozen service
        answers a receive with nothing too. Messages that another syphon has locked are waited
        for, up to 65 s without progress. A destination or queue that fails rests for
        ``syphon_retry_interval``, doubling, before it is tried again.

        :param progress: called after each step with the sum so far.
        """
        movers = [Mover(self._shared, queue) for queue in self._queues]

        def tell() -> None:
            if progress is not None:
                progress(_total(movers))

        await asyncio.gather(*(self._drain_queue(mover, tell) for mover in movers))
        report = _total(movers)
        _log.info(
            "drain queues=%d moved=%d dead_lettered=%d left=%d duplicates_possible=%d",
            len(movers),
            report.moved_total,
            sum(report.dead_lettered.values()),
            report.left,
            report.duplicates_possible,
        )
        return report

    async def run(self) -> None:
        """Move messages for as long as the task lives, polling each queue for ``syphon_long_poll``.

        Cancel the task to stop; messages in hand that the primary did not confirm are released.
        """
        await asyncio.gather(*(self._run_queue(queue) for queue in self._queues))

    async def _drain_queue(self, mover: Mover, tell: Callable[[], None]) -> None:
        most = self._shared.options.syphon_batch_size
        failed, taken = 0, 0
        moved_at = self._shared.clock.now()
        try:
            while True:
                mover.tally.failures.clear()
                try:
                    # After a full batch there is more; otherwise a peek tells, in one round trip.
                    if taken < most and await self._finished(mover, moved_at):
                        return
                    taken = await mover.step(wait=_DRAIN_WAIT_SECONDS)
                except ServiceError as error:
                    mover.tally.failures[mover.queue] = str(error)
                tell()
                if taken and not mover.tally.failures:
                    failed, moved_at = 0, self._shared.clock.now()
                if mover.tally.failures:
                    failed += 1
                    if failed == _FAILURES_BEFORE_GIVING_UP:
                        return
                    await self._shared.clock.sleep(self._rest(failed))
        finally:
            await mover.close()

    async def _finished(self, mover: Mover, moved_at: float) -> bool:
        """Answer whether nothing is left, or nothing that could be had within patience."""
        mover.tally.left = await mover.remaining()
        idle = self._shared.clock.now() - moved_at
        return mover.tally.left == 0 or idle > _PATIENCE_SECONDS

    async def _run_queue(self, queue: str) -> None:
        wait = self._shared.options.syphon_long_poll.total_seconds()
        failed = 0
        while True:
            mover = Mover(self._shared, queue)
            try:
                while not mover.tally.failures:
                    await mover.step(wait=wait)
                    failed = 0 if not mover.tally.failures else failed
            except ServiceError as error:
                mover.tally.failures[queue] = str(error)
            finally:
                await mover.close()
            failed += 1
            rest = self._rest(failed)
            _log.warning("syphon queue=%s rests=%.0fs: %s", queue, rest, mover.tally.failures)
            await self._shared.clock.sleep(rest)

    def _rest(self, failed: int) -> float:
        first = self._shared.options.syphon_retry_interval.total_seconds()
        return float(min(first * 2 ** (failed - 1), _LONGEST_REST_SECONDS))


def _total(movers: Iterable[Mover]) -> DrainReport:
    return sum((mover.tally.report() for mover in movers), DrainReport())
