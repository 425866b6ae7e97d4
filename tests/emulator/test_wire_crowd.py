"""Issue 3: "1,000 connections open at once"."""

from __future__ import annotations

from tests.emulator.crowd import KILOBYTE, run


async def test_a_thousand_connections_are_open_at_once_and_each_is_served():
    figures = await run(count=1000)
    assert figures.served == 1000
    assert figures.seconds < 30
    assert figures.memory < 200 * KILOBYTE
