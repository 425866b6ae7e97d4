"""A pair in other processes, threads and event loops, and its reopening (SPEC sections 5 and 7)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core.model.errors import ConfigurationError, PairClosedError
from servicebus_pair.core.model.events import Pinged
from tests.core.support.local_pair import LocalPair, numbered

FORKED = """
import asyncio, os
from servicebus_pair.core.model.errors import PairClosedError
from tests.core.support.local_pair import open_quick_pair, numbered

async def run_in_child(sender, pair):
    for call in (lambda: sender.send(numbered(1)), pair.close, lambda: sender.cancel_scheduled(1)):
        try:
            await call()
            print("worked", flush=True)
        except PairClosedError as error:
            print(error, flush=True)

async def main():
    async with open_quick_pair() as local_pair, local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        child = os.fork()
        if child == 0:
            asyncio.run(run_in_child(sender, local_pair.pair))
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        print("parent", (await sender.send(numbered(1))).primary, flush=True)

asyncio.run(main())
"""


async def test_forked_process_is_rejected_and_parent_keeps_working() -> None:
    command = (sys.executable, "-W", "ignore", "-c", FORKED)
    program = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3], stderr=subprocess.PIPE
    )
    output, errors = await asyncio.wait_for(program.communicate(), 40)
    lines = output.decode().splitlines()
    assert len(lines) == 4, errors.decode()
    assert all("open a pair in each process, after the fork" in line for line in lines[:3])
    assert lines[3] == "parent 1"


async def test_sender_and_syphon_can_be_created_in_a_thread(local_pair: LocalPair) -> None:
    sender = await asyncio.to_thread(local_pair.pair.sender, "flights")
    syphon = await asyncio.to_thread(local_pair.pair.syphon)
    async with sender:
        assert (await sender.send(numbered(1))).primary == 1
    assert (await syphon.drain()).empty


async def test_use_in_another_loop_is_rejected_and_is_no_outage(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        calls = (
            lambda: sender.send(numbered(1)),
            lambda: sender.cancel_scheduled(1),
            sender.__aenter__,
            local_pair.pair.close,
            lambda: local_pair.pair.ping("flights"),
            lambda: local_pair.pair.fail_over("flights", reason="test"),
            lambda: local_pair.pair.mark_healthy("flights"),
        )
        for call in calls:
            with pytest.raises(PairClosedError, match="is used in another one"):
                await asyncio.to_thread(lambda call=call: asyncio.run(_awaited(call)))
        assert (await sender.send(numbered(1))).primary == 1
    assert local_pair.recorder.states == []


async def _awaited(call: Callable[[], object]) -> object:
    return await call()  # type: ignore[misc]


async def test_pair_cannot_be_opened_twice(local_pair: LocalPair) -> None:
    with pytest.raises(ConfigurationError, match="open already"):
        await local_pair.pair.__aenter__()


async def test_reopened_pair_pings_failed_over_entity(
    local_pair: LocalPair,
) -> None:
    await local_pair.pair.fail_over("flights", reason="test")
    await local_pair.pair.close()
    async with local_pair.pair:
        await asyncio.wait_for(local_pair.recorder.recovered.wait(), 5)
    assert [ping.succeeded for ping in local_pair.recorder.of(Pinged)] == [True]


async def test_cancelled_close_disconnects(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        local_pair.primary.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, delay=1))
        shared = local_pair.pair._open()
        sending = asyncio.create_task(sender.send(numbered(1, start=1)))
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(local_pair.pair.close(), 0.2)
        assert shared.primary.is_closed
        assert shared.secondary.is_closed
        await asyncio.gather(sending, return_exceptions=True)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5", True])
async def test_invalid_send_timeout_is_rejected(local_pair: LocalPair, timeout: object) -> None:
    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(ConfigurationError, match=r"timeout is .* a number of seconds from 0 on, or None"):
            await sender.send(numbered(1), timeout=timeout)  # type: ignore[arg-type]
    assert await local_pair.primary_ids() == []
