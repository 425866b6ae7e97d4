"""Assignment of links to batches (SPEC section 6)."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from servicebus_pair.core.syphon.policies.link_pool import LinkPool


class Batches:
    """Batches that hold a link until they are released."""

    def __init__(self, pool: LinkPool) -> None:
        self.pool = pool
        self.links_used: list[int] = []
        self.released = asyncio.Event()

    async def send(self, entity: str) -> None:
        async with self.pool.acquire(entity) as index:
            self.links_used.append(index)
            await self.released.wait()


async def waiting(batches: Batches, *entities: str) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(batches.send(entity)) for entity in entities]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return tasks


async def test_batches_to_one_destination_use_links_up_to_the_maximum() -> None:
    batches = Batches(LinkPool(3))
    tasks = await waiting(batches, "flights", "FLIGHTS", "flights", "flights", "flights")
    assert batches.links_used == [0, 1, 2]
    batches.released.set()
    await asyncio.gather(*tasks)
    assert sorted(batches.links_used)[:3] == [0, 0, 0]
    assert len(batches.links_used) == 5


async def test_a_single_link_keeps_the_order() -> None:
    pool, order = LinkPool(1), list[int]()

    async def send(batch: int) -> None:
        async with pool.acquire("flights") as index:
            assert index == 0
            order.append(batch)
            await asyncio.sleep(0)
            order.append(batch)

    await asyncio.gather(*(send(batch) for batch in range(4)))
    assert order == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_a_free_link_is_used_before_another_is_opened() -> None:
    pool = LinkPool(3)
    for _ in range(3):
        async with pool.acquire("flights") as index:
            assert index == 0


async def test_destinations_with_one_batch_each_leave_the_extra_links_to_others() -> None:
    batches = Batches(LinkPool(3))
    tasks = await waiting(batches, *"abcdefg")
    tasks += await waiting(batches, *"xxx")
    assert batches.links_used == [*[0] * 7, 0, 1, 2]
    batches.released.set()
    await asyncio.gather(*tasks)


async def test_destinations_share_the_extra_links() -> None:
    batches = Batches(LinkPool(3))
    tasks = await waiting(batches, *(entity for entity in ("a", "b", "c", "d") for _ in range(3)))
    assert sorted(batches.links_used) == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    batches.released.set()
    await asyncio.gather(*tasks)
    assert len(batches.links_used) == 12


async def test_a_cancelled_sender_frees_its_link() -> None:
    batches = Batches(LinkPool(1))
    sending, waiting_task, last = await waiting(batches, "flights", "flights", "flights")
    waiting_task.cancel()
    sending.cancel()
    batches.released.set()
    await asyncio.gather(sending, waiting_task, return_exceptions=True)
    await last
    async with AsyncExitStack() as stack:
        assert await stack.enter_async_context(batches.pool.acquire("flights")) == 0
