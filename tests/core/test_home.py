"""A pair belongs to the process and event loop that opened it: elsewhere a clear error, at once (SPEC section 7)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import NamespacePair
from servicebus_pair.core.errors import ConfigurationError, PairClosedError
from servicebus_pair.core.events import Pinged
from tests.core.breakable import Breakable, numbered

FORKED = """
import asyncio, os
from servicebus_pair.core.errors import PairClosedError
from tests.core.breakable import breakable_pair, numbered

async def in_the_child(sender, pair):
    for call in (lambda: sender.send(numbered(1)), pair.close, lambda: sender.cancel_scheduled(1)):
        try:
            await call()
            print("worked", flush=True)
        except PairClosedError as error:
            print(error, flush=True)

async def main():
    async with breakable_pair() as breakable, breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        child = os.fork()
        if child == 0:
            asyncio.run(in_the_child(sender, breakable.pair))
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        print("parent", (await sender.send(numbered(1))).primary, flush=True)

asyncio.run(main())
"""

USES: dict[str, Callable[[NamespacePair], object]] = {
    "a failover": lambda pair: pair.fail_over("flights", reason="test"),
    "a healing": lambda pair: pair.mark_healthy("flights"),
}


async def test_a_forked_process_is_told_so_and_leaves_the_connections_of_its_parent_alone() -> None:
    command = (sys.executable, "-W", "ignore", "-c", FORKED)
    program = await asyncio.create_subprocess_exec(
        *command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE
    )
    said, errors = await asyncio.wait_for(program.communicate(), 40)
    lines = said.decode().splitlines()
    assert len(lines) == 4, errors.decode()
    assert all("open a pair in each process, after the fork" in line for line in lines[:3])
    assert lines[3] == "parent 1"


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
async def test_a_pair_is_not_used_from_a_thread_without_its_loop(
    breakable: Breakable, use: Callable[[NamespacePair], object]
) -> None:
    with pytest.raises(PairClosedError, match="is used without one: open a pair in each loop"):
        await asyncio.to_thread(use, breakable.pair)
    assert breakable.recorder.states == []


async def test_a_thread_without_a_loop_makes_what_the_loop_of_the_pair_uses(breakable: Breakable) -> None:
    sender = await asyncio.to_thread(breakable.pair.sender, "flights")
    syphon = await asyncio.to_thread(breakable.pair.syphon)
    async with sender:
        assert (await sender.send(numbered(1))).primary == 1
    assert (await syphon.drain()).empty


async def test_a_sender_is_not_used_from_another_loop_and_nothing_is_taken_for_an_outage(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        calls = (
            lambda: sender.send(numbered(1)),
            lambda: sender.cancel_scheduled(1),
            sender.__aenter__,
            breakable.pair.close,
            lambda: breakable.pair.ping("flights"),
        )
        for call in calls:
            with pytest.raises(PairClosedError, match="is used in another one"):
                await asyncio.to_thread(lambda call=call: asyncio.run(_awaited(call)))
        assert (await sender.send(numbered(1))).primary == 1
    assert breakable.recorder.states == []


async def _awaited(call: Callable[[], object]) -> object:
    return await call()  # type: ignore[misc]


async def test_a_pair_is_opened_once_at_a_time(breakable: Breakable) -> None:
    with pytest.raises(ConfigurationError, match="open already"):
        await breakable.pair.__aenter__()


async def test_section_5_a_pair_that_was_closed_while_an_entity_was_failed_over_looks_after_it_when_opened_again(
    breakable: Breakable,
) -> None:
    breakable.pair.fail_over("flights", reason="test")
    await breakable.pair.close()
    async with breakable.pair:
        await asyncio.wait_for(breakable.recorder.healthy_again.wait(), 5)
    assert [ping.succeeded for ping in breakable.recorder.of(Pinged)] == [True]


async def test_section_7_a_close_that_is_cancelled_leaves_nothing_connected(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        breakable.primary.set_fault(Fault(kind=FaultKind.LATE_DISPOSITION, delay=1))
        shared = breakable.pair._open()
        sending = asyncio.create_task(sender.send(numbered(1, start=1)))
        await asyncio.sleep(0.1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(breakable.pair.close(), 0.2)
        assert shared.primary.ended
        assert shared.secondary.ended
        await asyncio.gather(sending, return_exceptions=True)


@pytest.mark.parametrize("timeout", [-1, float("nan"), "5", True])
async def test_a_timeout_that_is_no_number_of_seconds_is_refused_before_anything_is_taken(
    breakable: Breakable, timeout: object
) -> None:
    async with breakable.pair.sender("flights") as sender:
        with pytest.raises(ConfigurationError, match=r"timeout is .* a number of seconds from 0 on, or None"):
            await sender.send(numbered(1), timeout=timeout)  # type: ignore[arg-type]
    assert await breakable.ids_on_the_primary() == []
