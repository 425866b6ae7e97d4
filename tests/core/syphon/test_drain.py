"""What a drain moves, and when it ends (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core import DrainReport, PairOptions
from servicebus_pair.core.model.errors import AuthorizationError, ServiceError
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths
from servicebus_pair.core.syphon.drain import Syphon
from servicebus_pair.core.syphon.ports import PairTransport
from servicebus_pair.core.syphon.queue_drain import QueueDrain
from tests.core.support.fake_transport import drain_context
from tests.core.support.local_pair import messages, open_local_pair

pytestmark = pytest.mark.simulated


async def test_section_6_concurrent_syphons_share_the_work_without_duplicates() -> None:
    options = PairOptions(backlog_queue_count=2)
    async with open_local_pair("flights", options=options) as local_pair:
        for n, queue in enumerate(backlog_queue_paths("contoso", 2)):
            await local_pair.put_into_backlog("flights", messages(*range(n * 500, n * 500 + 500)), queue=queue)
        reports = await asyncio.gather(*(local_pair.pair.syphon().drain() for _ in range(3)))
        assert sum(report.moved_total for report in reports) == 1000
        assert all(report.empty for report in reports)
        assert Counter(await local_pair.primary_ids("flights")) == Counter(f"m{n}" for n in range(1000))


class FakeSyphon:
    """A syphon over fake queues ``q0`` and ``q1``, which hold messages for ``flights``."""

    def __init__(self, *counts: int, **more: Any) -> None:
        self.context, self.transport, _ = drain_context(**more)
        for number, count in enumerate(counts):
            self.transport.queues[f"q{number}"].put("flights", *(f"m{number}-{n}" for n in range(count)))
        self.remaining: int | ServiceError = 7
        queues = [f"q{number}" for number in range(len(counts))]
        self.syphon = Syphon(self.context, queues, initial_delay=1.0, long_poll=900.0, count=self._count)

    async def _count(self, queues: Collection[str]) -> int:
        assert list(queues) == ["q0", "q1"]
        if isinstance(self.remaining, ServiceError):
            raise self.remaining
        return self.remaining


async def test_section_6_a_report_sums_all_queues_and_names_failing_destinations() -> None:
    fake = FakeSyphon(3, 2)
    fake.transport.queues["q1"].put(None, "bad")
    steps: list[DrainReport] = []
    report = await fake.syphon.drain(progress=steps.append)
    assert (report.moved, report.dead_lettered, report.left, report.failures) == ({"flights": 5}, {"NoPath": 1}, 0, {})
    assert steps[-1] == report == fake.syphon.report()
    fake.context.backoff.record_failure("delays", "busy", now=0, started=0)
    assert fake.syphon.report().failures == {"delays": "busy"}


@pytest.mark.parametrize("remaining", [7, AuthorizationError("no")])
async def test_section_6_progress_is_measured_from_the_start_of_the_drain(remaining: int | ServiceError) -> None:
    fake = FakeSyphon(3, 2)
    fake.transport.clock.time += 100
    await fake.syphon.drain()
    fake.transport.queues["q0"].put(None, "bad")
    await fake.syphon.drain()
    fake.remaining = remaining
    fake.transport.clock.time += 50
    progress = await fake.syphon.progress()
    assert (progress.moved, progress.dead_lettered) == (0, 1)
    assert progress.remaining == (7 if remaining == 7 else None)
    assert 50 <= progress.seconds < 52


async def test_section_6_a_refusal_is_raised_only_if_nothing_was_moved_or_dead_lettered() -> None:
    denied = AuthorizationError("no")
    for put, raised in ((None, True), ("flights", False), ("", False)):
        fake = FakeSyphon(0, 0)
        fake.transport.queues["q0"].errors["receive"] = denied
        if put is not None:
            fake.transport.queues["q1"].put(put or None, "m")
        if raised:
            with pytest.raises(AuthorizationError, match="the right Listen on q0"):
                await fake.syphon.drain()
        else:
            assert list((await fake.syphon.drain()).failures) == ["q0"]
    both = FakeSyphon(0, 1)
    both.transport.queues["q0"].errors["receive"] = denied
    both.transport.entities["flights"].refuse = lambda _: denied
    with pytest.raises(AuthorizationError, match="the right Listen on q0"):
        await both.syphon.drain()
    refusing = FakeSyphon(1)
    refusing.transport.entities["flights"].refuse = lambda _: denied
    for _ in range(2):
        with pytest.raises(AuthorizationError, match="the right Send on flights"):
            await refusing.syphon.drain()
    refusing.transport.entities["flights"].refuse = lambda _: None
    assert (await refusing.syphon.drain()).moved == {"flights": 1}


@pytest.mark.parametrize(("session", "links"), [(None, 2), ("s", 1)])
async def test_section_6_a_large_backlog_is_received_over_two_links_unless_it_has_old_sessions(
    session: str | None, links: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake, drains, busy = FakeSyphon(0, max_batch_messages=4, ordered=True), list[QueueDrain](), list[int]()
    fake.transport.queues["q0"].put("flights", *(f"m{n}" for n in range(400)), session_id=session)
    work = QueueDrain.work

    async def work_recorded(self: QueueDrain) -> None:
        drains.append(self)
        await work(self)

    monkeypatch.setattr(QueueDrain, "work", work_recorded)
    report = await fake.syphon.drain(progress=lambda _: busy.append(1 + drains[0]._run.extra_links))
    assert (report.moved, max(busy)) == ({"flights": 400}, links)


async def test_section_6_a_stopped_or_paused_syphon_receives_nothing_until_it_goes_on() -> None:
    fake = FakeSyphon(1)
    fake.syphon.pause()
    assert fake.context.paused
    draining = asyncio.create_task(fake.syphon.drain())
    await asyncio.sleep(1)
    assert fake.transport.queues["q0"].called("receive") == []
    assert fake.transport.should_stop(), "a long poll that had begun ends"
    fake.syphon.resume()
    assert (fake.context.paused, fake.transport.should_stop()) == (False, False)
    assert (await draining).moved == {"flights": 1}
    assert fake.context.paused, "it has stopped"
    stopped: list[bool] = []
    await fake.syphon.drain(progress=lambda _: stopped.append(fake.context.paused))
    assert not any(stopped)
    fake.syphon.rate = 5
    assert fake.syphon.rate == fake.context.rate_limiter.rate == 5


async def test_section_6_a_receive_that_does_not_end_with_the_syphon_is_cancelled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fake = FakeSyphon(1)
    monkeypatch.setattr(fake.transport.queues["q0"], "receive", lambda **_: asyncio.sleep(60))
    running = asyncio.create_task(fake.syphon.run())
    await asyncio.sleep(1)
    fake.syphon.stop()
    started = asyncio.get_running_loop().time()
    await running
    assert asyncio.get_running_loop().time() - started == pytest.approx(1.5, abs=0.1)


@pytest.mark.parametrize("dead_letter", [False, True])
def test_the_transport_opens_links_of_the_pair(dead_letter: bool) -> None:
    calls: list[Any] = []
    primary: Any = SimpleNamespace(can_relay=False, send_link=lambda *given, **more: calls.append((given, more)))
    secondary: Any = SimpleNamespace(can_relay=False, receive_link=lambda *given, **more: calls.append((given, more)))
    transport = PairTransport(primary, secondary, max_bytes=5)
    transport.source("q", should_stop=bool, dead_letter=dead_letter)
    transport.source("q", should_stop=bool)
    transport.destination("flights", link_index=2)
    transport.destination("flights")
    assert calls == [
        (("q",), {"dead_letter": dead_letter, "should_stop": bool, "relay_bytes": 0}),
        (("q",), {"dead_letter": False, "should_stop": bool, "relay_bytes": 0}),
        (("flights",), {"link_index": 2}),
        (("flights",), {"link_index": 0}),
    ]


def test_the_transport_leaves_messages_encoded_where_both_clients_can() -> None:
    calls: list[Any] = []
    primary: Any = SimpleNamespace(can_relay=True, relay_send_link=lambda *given: calls.append(given))
    secondary: Any = SimpleNamespace(
        can_relay=True,
        receive_link=lambda *given, **more: calls.append((*given, more["relay_bytes"])),
        session_link=lambda *given, **more: calls.append((*given, more["relay_bytes"])),
    )
    transport = PairTransport(primary, secondary, max_bytes=5)
    transport.source("q", should_stop=bool)
    transport.session("s", wait=1.0, session_id=None, should_stop=bool)
    transport.destination("flights", link_index=2)
    assert calls == [("q", 5), ("s", 5), ("flights",)]


def test_a_link_receives_at_most_16_megabytes_at_a_time() -> None:
    context, _, _ = drain_context()
    assert (context.max_batch_bytes, context.slow_batch_seconds) == (16 * 1_048_576, 15.0)
    assert (context.ordered, context.redrive, context.paused, context.continuous) == (False, False, False, False)
