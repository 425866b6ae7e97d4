"""The spool as one more thing that a syphon empties (SPEC section 10)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Final, Protocol

from servicebus_pair.core.model.errors import PairError
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.results import DrainReport
from servicebus_pair.core.spool.drain import BeforeBatch, SpoolReport
from servicebus_pair.core.syphon.drain_context import DrainContext
from servicebus_pair.core.syphon.policies.destination_backoff import backoff_delay

_log = get_logger(__name__)
SPOOL: Final = "spool"
"""Stands for the spool among the paths of backlog queues."""
_SET_ASIDE: Final = "SetAsideFromSpool"


class EmptySpool(Protocol):
    """Empties the spool once; see ``core.spool.drain.empty_spool``."""

    def __call__(
        self, *, entities: Collection[str] | None, before_batch: BeforeBatch
    ) -> Awaitable[SpoolReport]:  # pragma: no cover - a type
        """:raises SpoolError: the spool cannot be read."""
        ...


class SpoolDrain:
    """The part of a syphon for the spool.

    :param empty: empties it once.
    :param interval: seconds between two looks of a continuous syphon, and the first delay after a failure.
    """

    def __init__(self, empty: EmptySpool, *, interval: float) -> None:
        self._empty = empty
        self._interval = interval
        self.start()

    def start(self) -> None:
        """Count anew."""
        self._unspooled: Counter[str] = Counter()
        self._set_aside = 0
        self._duplicates_possible = 0
        self._left = DrainReport()

    def report(self) -> DrainReport:
        """Return what was done so far, and what the last look left."""
        return self._left + DrainReport(
            dead_lettered={_SET_ASIDE: self._set_aside} if self._set_aside else {},
            duplicates_possible=self._duplicates_possible,
            unspooled=dict(self._unspooled),
        )

    async def empty(
        self, context: DrainContext, *, resumed: asyncio.Event, report_progress: Callable[[], None]
    ) -> None:
        """Empty the spool once; while the syphon is paused, wait first."""

        async def before_batch(messages: int) -> bool:
            while messages > 0 and not context.paused:
                messages -= await context.rate_limiter.acquire(messages)
            report_progress()
            return not context.paused

        await resumed.wait()
        if context.paused:
            return
        try:
            report = await self._empty(entities=context.selection.entities, before_batch=before_batch)
        except PairError as error:
            self._left = DrainReport(failures={SPOOL: str(error)})
            _log.warning("the spool cannot be emptied: %s", error)
            return
        self._unspooled.update({entity: result.sent for entity, result in report.results.items()})
        self._set_aside += sum(report.set_aside.values())
        self._duplicates_possible += report.duplicates_possible
        failures = {f"{SPOOL} of {entity}": reason for entity, reason in report.failures.items()}
        self._left = DrainReport(left=report.left, failures=failures)
        if report.moved_total or report.failures:
            _log.info("spool moved=%d left=%d failures=%s", report.moved_total, report.left, failures)
        report_progress()

    async def empty_continuously(
        self, context: DrainContext, *, resumed: asyncio.Event, report_progress: Callable[[], None]
    ) -> None:
        """Empty the spool again and again, less often while it fails, until cancelled."""
        failures = 0
        while True:
            await self.empty(context, resumed=resumed, report_progress=report_progress)
            failures = failures + 1 if self._left.failures else 0
            delay = self._interval if not failures else backoff_delay(failures, initial_delay=self._interval)
            await context.clock.sleep(delay)
