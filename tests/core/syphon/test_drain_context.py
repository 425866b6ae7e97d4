"""What the workers of one syphon share (SPEC section 6)."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.core.support.fake_transport import drain_context


async def test_section_6_concurrent_batches_for_a_destination_use_up_to_three_links() -> None:
    context, transport, _ = drain_context()
    used: list[int] = []

    def destination(_: str, *, link_index: int = 0) -> Any:
        used.append(link_index)

    transport.destination = destination  # type: ignore[assignment, method-assign]

    async def send() -> None:
        async with context.destination("flights"):
            await asyncio.sleep(0)

    await asyncio.gather(*(send() for _ in range(4)))
    assert used == [0, 1, 2, 0]
