"""The part of a syphon that empties the spool (SPEC section 10)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest

from servicebus_pair.core.model.errors import SpoolError
from servicebus_pair.core.model.results import DrainReport, SendResult
from servicebus_pair.core.spool.drain import BeforeBatch, SpoolReport
from servicebus_pair.core.syphon.backlog_entry import Selection
from servicebus_pair.core.syphon.spool_drain import SpoolDrain
from tests.core.support.fake_transport import EPOCH, drain_context
from tests.core.support.manual_clock import ManualClock


class Emptying:
    """A spool drain over a spool that answers with ``answers``, one at each look; the last one is repeated.

    :ivar batches: numbers of messages that each look asks leave for.
    """

    def __init__(self, *answers: SpoolReport | SpoolError, **more: Any) -> None:
        self.context, transport, _ = drain_context(**more)
        self.clock: ManualClock = transport.clock
        self.answers, self.batches = list(answers), list[int]()
        self.looks: list[tuple[float, Collection[str] | None]] = []
        self.leave: list[tuple[bool, float]] = []
        self.progress = 0
        self.resumed = asyncio.Event()
        self.resumed.set()
        self.drain = SpoolDrain(self._empty, interval=60.0)

    async def _empty(self, *, entities: Collection[str] | None, before_batch: BeforeBatch) -> SpoolReport:
        self.looks.append((self.clock.now(), entities))
        for messages in self.batches:
            self.leave.append((await before_batch(messages), self.clock.now() - EPOCH))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, SpoolError):
            raise answer
        return answer

    def _report_progress(self) -> None:
        self.progress += 1

    async def empty(self) -> DrainReport:
        await self.drain.empty(self.context, resumed=self.resumed, report_progress=self._report_progress)
        return self.drain.report()


def emptied(left: int = 0, failures: dict[str, str] | None = None, **sent: int) -> SpoolReport:
    results = {entity: SendResult(primary=count) for entity, count in sent.items()}
    return SpoolReport(results=results, left=left, failures=failures or {})


async def test_looks_add_up_and_only_the_last_one_says_what_is_left() -> None:
    first = SpoolReport(
        results={"flights": SendResult(primary=2, diverted=1), "gates": SendResult(diverted=4)},
        set_aside={"flights": 2, "gates": 1},
        duplicates_possible=3,
        left=5,
        failures={"gates": "busy"},
    )
    emptying = Emptying(first, emptied(flights=5))
    assert await emptying.empty() == DrainReport(
        unspooled={"flights": 3, "gates": 4},
        dead_lettered={"SetAsideFromSpool": 3},
        duplicates_possible=3,
        left=5,
        failures={"spool of gates": "busy"},
    )
    assert await emptying.empty() == DrainReport(
        unspooled={"flights": 8, "gates": 4}, dead_lettered={"SetAsideFromSpool": 3}, duplicates_possible=3
    )
    assert emptying.progress == 2
    emptying.drain.start()
    assert emptying.drain.report() == DrainReport()


async def test_a_spool_that_cannot_be_read_is_a_failure_until_it_can() -> None:
    emptying = Emptying(SpoolError("no folder"), emptied())
    assert (await emptying.empty()).failures == {"spool": "no folder"}
    assert emptying.progress == 0
    assert await emptying.empty() == DrainReport()


async def test_only_selected_entities_are_emptied() -> None:
    emptying = Emptying(emptied(), selection=Selection.of(["Flights"]))
    await emptying.empty()
    [(_, entities)] = emptying.looks
    assert entities == emptying.context.selection.entities is not None


async def test_each_batch_waits_for_as_many_permits_as_it_has_messages() -> None:
    emptying = Emptying(emptied(), rate=10.0)
    emptying.batches = [5, 25, 0]
    await emptying.empty()
    assert [leave for leave, _ in emptying.leave] == [True] * 3
    assert [seconds for _, seconds in emptying.leave] == pytest.approx([0.5, 3.0, 3.0], abs=0.01)
    assert emptying.progress == 4


async def test_a_paused_syphon_neither_looks_nor_begins_a_batch() -> None:
    emptying = Emptying(emptied(), paused=True)
    assert await emptying.empty() == DrainReport()
    assert emptying.looks == []
    emptying.context.paused = False
    emptying.resumed.clear()
    waiting = asyncio.create_task(emptying.empty())
    await asyncio.sleep(0)
    assert emptying.looks == []
    emptying.resumed.set()
    await waiting
    assert len(emptying.looks) == 1

    pausing = Emptying(emptied(), rate=10.0)

    async def pause(messages: int) -> int:
        pausing.context.paused = True
        return messages - 1

    pausing.context.rate_limiter.acquire = pause  # type: ignore[method-assign, assignment]
    pausing.batches = [3]
    await pausing.empty()
    assert (pausing.leave, pausing.progress) == ([(False, 0.0)], 2)


async def test_a_continuous_syphon_looks_each_interval_and_less_often_while_it_fails() -> None:
    failing = SpoolError("no folder")
    emptying = Emptying(emptied(), failing, failing, failing, emptied(), emptied())

    async def sleep(seconds: float) -> None:
        emptying.clock.time += seconds
        if len(emptying.looks) == 6:
            raise asyncio.CancelledError

    emptying.clock.sleep = sleep  # type: ignore[method-assign]
    with pytest.raises(asyncio.CancelledError):
        await emptying.drain.empty_continuously(
            emptying.context, resumed=emptying.resumed, report_progress=lambda: None
        )
    assert [at - EPOCH for at, _ in emptying.looks] == [0, 60, 120, 240, 360, 420]
