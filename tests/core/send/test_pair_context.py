"""Closing waits for sends in flight, for a time, and refuses new ones (SPEC section 7)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core.model.errors import PairClosedError, SendTimeoutError, ServiceFaultError
from servicebus_pair.core.send.pair_context import InFlightSends, lease
from servicebus_pair.core.send.timeouts import Deadline
from tests.core.support.manual_clock import ManualClock

pytestmark = pytest.mark.simulated


@pytest.mark.parametrize(
    ("seconds", "remaining", "waited"), [((), 0, 0), ((3,), 0, 3), ((1, 4), 0, 4), ((3, 6, 9), 2, 5)]
)
async def test_section_7_close_waits_for_sends_in_flight_within_the_grace(
    seconds: tuple[float, ...], remaining: int, waited: float
) -> None:
    sends = InFlightSends()

    async def send(duration: float) -> None:
        with sends:
            await asyncio.sleep(duration)

    tasks = [asyncio.create_task(send(duration)) for duration in seconds]
    await asyncio.sleep(0)
    started = asyncio.get_running_loop().time()
    assert await sends.close(grace=5) == remaining
    assert asyncio.get_running_loop().time() - started == pytest.approx(waited, abs=0.1)
    await asyncio.gather(*tasks)


async def test_section_7_a_closed_pair_refuses_sends_and_a_failed_send_is_not_in_flight() -> None:
    sends = InFlightSends()
    with pytest.raises(LookupError), sends:
        raise LookupError
    assert await sends.close(grace=5) == 0
    with pytest.raises(PairClosedError, match="nothing was sent; open a new pair"), sends:
        raise AssertionError("entered")
    assert await sends.close(grace=5) == 0


@pytest.mark.parametrize("left", [5.0, 0.0])
async def test_section_6_a_lease_that_takes_too_long_ends_the_send_with_the_failure_before(left: float) -> None:
    clock, limits, last = ManualClock(), list[float](), ServiceFaultError("broken")

    async def lease_too_long(entity: str, *, timeout: float, unspools: bool) -> None:
        assert (entity, unspools) == ("flights", False)
        limits.append(timeout)
        raise TimeoutError

    context: Any = SimpleNamespace(registry=SimpleNamespace(lease=lease_too_long), unspooled_from=None)
    deadline = Deadline(clock, timeout=5.0)
    clock.time += 5.0 - left
    with pytest.raises(SendTimeoutError, match=r"within the 5\.0 s given by the caller: broken") as caught:
        await lease(context, "flights", deadline, last=last)
    assert (caught.value.cause, limits) == (last, [5.0] if left else [])
