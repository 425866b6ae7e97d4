"""Several hands are on their way to one destination at a time, and only as many as pay (SPEC section 6)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from servicebus_pair.core.lanes import Lanes, most_lanes


class Hands:
    """Hands that want a lane, and keep it until they are let go."""

    def __init__(self, lanes: Lanes) -> None:
        self.lanes = lanes
        self.sent_over: list[int] = []
        self.enough = asyncio.Event()

    async def send(self, entity: str) -> None:
        async with self.lanes.turn(entity) as number:
            self.sent_over.append(number)
            await self.enough.wait()


async def waiting(hands: Hands, *entities: str) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(hands.send(entity)) for entity in entities]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_hands_for_one_destination_go_at_the_same_time_up_to_its_lanes() -> None:
    hands = Hands(Lanes(3))
    tasks = await waiting(hands, "flights", "FLIGHTS", "flights", "flights", "flights")
    assert hands.sent_over == [0, 1, 2]
    hands.enough.set()
    await asyncio.gather(*tasks)
    assert sorted(hands.sent_over)[:3] == [0, 0, 0]
    assert len(hands.sent_over) == 5


async def test_one_lane_keeps_what_is_sent_in_the_order_in_which_it_came() -> None:
    lanes, order = Lanes(1), list[int]()

    async def send(hand: int) -> None:
        async with lanes.turn("flights") as number:
            assert number == 0
            order.append(hand)
            await asyncio.sleep(0)
            order.append(hand)

    await asyncio.gather(*(send(hand) for hand in range(4)))
    assert order == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_a_lane_that_is_free_is_used_before_another_is_opened() -> None:
    lanes = Lanes(3)
    for _ in range(3):
        async with lanes.turn("flights") as number:
            assert number == 0


async def test_many_destinations_share_what_goes_beyond_their_first_lane() -> None:
    hands = Hands(Lanes(3, beyond_the_first=2))
    tasks = await waiting(hands, *(entity for entity in ("a", "b", "c", "d") for _ in range(3)))
    assert sorted(hands.sent_over) == [0, 0, 0, 0, 1, 2]
    hands.enough.set()
    await asyncio.gather(*tasks)
    assert len(hands.sent_over) == 12


async def test_who_is_cancelled_while_waiting_or_sending_leaves_the_lane_to_the_next() -> None:
    hands = Hands(Lanes(1))
    sending, patient, last = await waiting(hands, "flights", "flights", "flights")
    patient.cancel()
    sending.cancel()
    hands.enough.set()
    await asyncio.gather(sending, patient, return_exceptions=True)
    await last
    async with AsyncExitStack() as stack:
        assert await stack.enter_async_context(hands.lanes.turn("flights")) == 0


async def test_section_6_no_more_batches_are_under_way_than_are_said():
    for destinations in (1, 2, 5):
        hands = Hands(Lanes())
        tasks = await waiting(hands, *(f"queue {number % destinations}" for number in range(20 * destinations)))
        assert len(hands.sent_over) == most_lanes(destinations)
        hands.enough.set()
        await asyncio.gather(*tasks)
