"""What the workers of one syphon share (SPEC section 6)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.core.support.fake_transport import drain_context


@pytest.mark.parametrize(("ordered", "links"), [(True, [0, 0, 0, 0]), (False, [0, 1, 2, 0])])
async def test_section_6_in_session_order_a_destination_has_one_link(ordered: bool, links: list[int]) -> None:
    context, transport, _ = drain_context(ordered=ordered)
    used: list[int] = []

    def destination(_: str, *, link_index: int = 0) -> Any:
        used.append(link_index)

    transport.destination = destination  # type: ignore[method-assign]

    async def send() -> None:
        async with context.destination("flights"):
            await asyncio.sleep(0)

    await asyncio.gather(*(send() for _ in range(4)))
    assert used == links
