"""How much a syphon takes at a time, and how it settles that (SPEC section 6)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core import clients
from servicebus_pair.core.clients import ReceiveLink
from servicebus_pair.core.sdk_inside import settle_run
from tests.core.hosted import hosted, messages

pytestmark = pytest.mark.simulated


async def test_section_6_large_messages_make_small_hands_so_that_memory_stays_bounded() -> None:
    async with hosted("flights") as both:
        syphon = both.pair.syphon()
        syphon._shop.bytes_in_hand = 200_000
        for n in range(20):
            await both.put_into_backlog("flights", [ServiceBusMessage("x" * 50_000, message_id=f"m{n}")])
        sizes: list[int] = []
        fit = _hands(sizes)
        report = await syphon.drain()
        fit.undo()
        assert report.moved == {"flights": 20}
        assert sizes[0] == 16  # before anything is known
        assert max(sizes[1:]) <= 4


async def test_section_6_neighbours_are_settled_together_with_the_sdk_at_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    async def noted(receiver: Any, run: Sequence[Any], *, complete: bool, timeout: float) -> None:
        sizes.append(len(run))
        await settle_run(receiver, run, complete=complete, timeout=timeout)

    monkeypatch.setattr(clients, "settle_run", noted)
    async with hosted("flights", "delays") as both:
        await both.put_into_backlog("flights", messages(*range(100)))
        await both.put_into_backlog("delays", messages(*range(100)))
        assert (await both.pair.syphon().drain()).moved == {"flights": 100, "delays": 100}
    assert sum(sizes) == 200
    assert len(sizes) < 20


async def test_section_6_an_sdk_without_that_inside_settles_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clients, "can_settle_runs", lambda *_: False)
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(*range(60)))
        report = await both.pair.syphon().drain()
        assert (report.moved, report.duplicates_possible) == ({"flights": 60}, 0)
        assert await both.ids_in_backlog() == []


def _hands(sizes: list[int]) -> pytest.MonkeyPatch:
    """Note how many messages each receive asks for."""
    patch = pytest.MonkeyPatch()
    receive = ReceiveLink.receive

    async def noted(self: ReceiveLink, *, most: int, wait: float, timeout: float) -> object:
        sizes.append(most)
        return await receive(self, most=most, wait=wait, timeout=timeout)

    patch.setattr(ReceiveLink, "receive", noted)
    return patch
