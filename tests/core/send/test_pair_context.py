"""Closing waits for sends in flight, for a time, and refuses new ones (SPEC section 7)."""

from __future__ import annotations

import asyncio

import pytest

from servicebus_pair.core.model.errors import PairClosedError
from servicebus_pair.core.send.pair_context import InFlightSends

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
