"""The guard against use in another process or event loop."""

from __future__ import annotations

import asyncio
import os

import pytest

from servicebus_pair.core.model.errors import PairClosedError
from servicebus_pair.core.send.pair_context import ProcessLoopGuard


async def test_guard_allows_its_loop_and_creation_in_threads() -> None:
    guard = ProcessLoopGuard()
    guard.check()
    await asyncio.to_thread(guard.check, creating=True)
    with pytest.raises(PairClosedError, match="is used without one"):
        await asyncio.to_thread(guard.check)


@pytest.mark.parametrize("creating", [False, True])
async def test_guard_rejects_another_loop(creating: bool) -> None:
    guard = ProcessLoopGuard()

    async def check() -> None:
        guard.check(creating=creating)

    with pytest.raises(PairClosedError, match="is used in another one"):
        await asyncio.to_thread(lambda: asyncio.run(check()))


@pytest.mark.parametrize("process", [-1, 2**40])
async def test_guard_rejects_another_process(process: int, monkeypatch: pytest.MonkeyPatch) -> None:
    guard = ProcessLoopGuard()
    monkeypatch.setattr(os, "getpid", lambda: process)
    with pytest.raises(PairClosedError, match=f"not open in process {process}: open a pair in each process"):
        guard.check(creating=True)
