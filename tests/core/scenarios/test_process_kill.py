"""SIGKILL of a syphon or a sender loses nothing (SPEC sections 1 and 6)."""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import Process
from collections import Counter
from dataclasses import replace
from pathlib import Path

from servicebus_pair.core import Ledger
from servicebus_pair.core.protocol.backlog_queues import (
    BACKLOG_QUEUE,
    backlog_queue_paths,
)
from servicebus_pair.core.sdk.administration.data_plane import ServiceBusAdministration
from tests.core.conftest import TwoNamespaces
from tests.core.support.local_pair import numbered
from tests.core.support.processes import kill
from tests.core.support.queues import peek_all

COUNT = 3000
BATCH_SIZE = 100


def settings(namespaces: TwoNamespaces) -> dict[str, str]:
    return {
        "primary_connection_string": namespaces.primary.connection_string,
        "primary_namespace": namespaces.primary.name,
        "secondary_connection_string": namespaces.secondary.connection_string,
        "secondary_namespace": namespaces.secondary.name,
        "secondary_administration": namespaces.secondary.administration,
        "backlog_queue_count": "3",
        "syphon_batch_size": str(BATCH_SIZE),
    }


async def create_queues_with_short_locks(namespaces: TwoNamespaces) -> None:
    """Shorten the locks of the backlog queues, because those of a killed syphon have to expire."""
    endpoint = namespaces.endpoint(namespaces.secondary)
    async with ServiceBusAdministration(endpoint) as administration:
        for path in backlog_queue_paths("contoso", 3):
            await administration.create_queue(path, replace(BACKLOG_QUEUE, lock_duration="PT5S"))


async def fill_a_backlog(namespaces: TwoNamespaces) -> None:
    await create_queues_with_short_locks(namespaces)
    async with namespaces.pair() as pair:
        await pair.fail_over("flights", reason="test")
        for start in range(0, COUNT, 1000):
            async with pair.sender("flights") as sender:
                await sender.send(numbered(1000, start=start))


async def start_draining(namespaces: TwoNamespaces, ledger: Path) -> Process:
    command = (sys.executable, "-m", "tests.core.support.drain_process", json.dumps(settings(namespaces)))
    return await asyncio.create_subprocess_exec(*command, str(ledger), stdout=asyncio.subprocess.PIPE)


async def moved_at_least(program: Process, count: int) -> int:
    """Wait until a syphon has moved so many messages or has ended; return how many it moved."""
    assert program.stdout is not None
    moved = 0
    while moved < count and (line := await program.stdout.readline()):
        moved = int(line.split()[1])
    return moved


async def test_section_6_a_killed_syphon_loses_nothing(namespaces: TwoNamespaces, tmp_path: Path) -> None:
    await fill_a_backlog(namespaces)
    program = await start_draining(namespaces, tmp_path / "ledger")
    moved = await moved_at_least(program, 300)
    kill(program)
    await program.wait()
    assert moved < COUNT

    with Ledger(tmp_path / "ledger", run="second") as ledger:
        async with namespaces.pair(observers=[ledger]) as pair:
            drained = await pair.syphon().drain()
    assert drained.empty
    held = Counter(message.message_id for message in await peek_all(namespaces.primary.connection_string, "flights"))
    assert set(held) == {f"m{n}" for n in range(COUNT)}
    recorded = {
        record["id"]: record["queue"]
        for path in (tmp_path / "ledger").rglob("*.jsonl")
        for line in path.read_text().splitlines()
        if "id" in (record := json.loads(line))
    }
    duplicated = [name for name, copies in held.items() if copies > 1]
    assert set(duplicated) <= set(recorded), "a duplicate that no record explains"
    assert set(held.values()) <= {1, 2}
    # Of each queue, at most one window.
    of_queues = Counter(recorded[name] for name in duplicated)
    assert max(of_queues.values(), default=0) <= BATCH_SIZE


async def test_section_9_messages_confirmed_to_a_killed_sender_are_in_its_ledger_and_on_the_primary(
    namespaces: TwoNamespaces, tmp_path: Path
) -> None:
    command = (sys.executable, "-m", "tests.core.support.send_process", json.dumps(settings(namespaces)))
    program = await asyncio.create_subprocess_exec(*command, str(tmp_path / "ledger"), stdout=asyncio.subprocess.PIPE)
    assert program.stdout is not None
    confirmed = [(await asyncio.wait_for(program.stdout.readline(), 30)).decode().strip() for _ in range(50)]
    kill(program)
    confirmed += (await program.stdout.read()).decode().split()
    await program.wait()
    [ledger] = (tmp_path / "ledger").rglob("*.jsonl")
    lines = ledger.read_text().splitlines()
    recorded = {json.loads(line)["id"] for line in lines}
    held = {message.message_id for message in await peek_all(namespaces.primary.connection_string, "flights")}
    # The kill may have truncated the last line.
    assert set(confirmed[:-1]) <= recorded <= held
    assert "secret" not in ledger.read_text()
