"""Killing, freezing and resetting every process loses no message (SPEC sections 1 and 6); `make chaos` runs longer."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient

from servicebus_pair.core import PairOptions
from servicebus_pair.core.ledger.writer import Ledger
from tests.core.support.local_pair import LocalPair, open_local_pair
from tests.system.chaos.__main__ import run
from tests.system.chaos.messages import DEDUPLICATED, ENTITIES, Journal, make_message
from tests.system.chaos.verdict import Verdict, peek_queues, verdict_on
from tests.system.chaos.worker import LEDGERS, QUEUES

MESSAGES = 5


@pytest.mark.system
@pytest.mark.slow
async def test_a_short_chaos_run_loses_no_message(tmp_path: Path) -> None:
    verdict = await run(seconds=8, seed=7, folder=tmp_path, lock="PT5S")
    assert verdict.sent > 0
    assert verdict.kills + verdict.faults > 0
    assert verdict.ledger.sent >= verdict.sent
    assert verdict.holds, verdict


@pytest.fixture
async def run_without_faults(tmp_path: Path) -> AsyncIterator[LocalPair]:
    """Namespaces after a run without faults; journal and ledger are in ``tmp_path``."""
    journal = Journal(tmp_path, "sender")
    with Ledger(tmp_path / LEDGERS, run="without-faults") as ledger:
        options = PairOptions(backlog_queue_count=QUEUES)
        async with open_local_pair(*ENTITIES, options=options, observers=[ledger]) as both:
            for entity in ENTITIES:
                await both.pair.fail_over(entity, reason="divert the first half")
                for numbers in (range(MESSAGES), range(MESSAGES, 2 * MESSAGES)):
                    async with both.pair.sender(entity) as sender:
                        result = await sender.send([make_message(f"{entity}.{n}") for n in numbers])
                    journal.record(entity, result.message_ids)
                    await both.pair.mark_healthy(entity)
            await both.pair.syphon().drain()
            yield both


async def current_verdict(both: LocalPair, folder: Path) -> Verdict:
    contents = await peek_queues(both.primary.connection_string, both.secondary.connection_string)
    return verdict_on(contents, folder, actions=Counter(), seconds=0, seed=0)


async def remove_message(both: LocalPair, folder: Path) -> None:  # noqa: ARG001 - one signature for all
    async with (
        ServiceBusClient.from_connection_string(both.primary.connection_string) as client,
        client.get_queue_receiver("flights", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver,
    ):
        assert len(await receiver.receive_messages(max_message_count=1)) == 1


async def send_to_primary(both: LocalPair, entity: str, message: ServiceBusMessage) -> None:
    async with (
        ServiceBusClient.from_connection_string(both.primary.connection_string) as client,
        client.get_queue_sender(entity) as sender,
    ):
        await sender.send_messages(message)


async def take_message(both: LocalPair, folder: Path) -> ServiceBusMessage:
    """Remove a message from the primary and return one like it."""
    await remove_message(both, folder)
    [name] = {f"flights.{n}" for n in range(2 * MESSAGES)} - set(await both.primary_ids("flights"))
    return make_message(name)


async def change_body(both: LocalPair, folder: Path) -> None:
    taken = await take_message(both, folder)
    changed = ServiceBusMessage(
        b"another",
        message_id=taken.message_id,
        session_id=taken.session_id,
        subject=taken.subject,
        application_properties=taken.application_properties,
    )
    await send_to_primary(both, "flights", changed)


async def leave_backlog_property(both: LocalPair, folder: Path) -> None:
    changed = await take_message(both, folder)
    changed.application_properties = {**(changed.application_properties or {}), "x-ms-path": "flights"}
    await send_to_primary(both, "flights", changed)


async def duplicate_message(both: LocalPair, folder: Path) -> None:  # noqa: ARG001 - one signature for all
    await send_to_primary(both, "flights", make_message("flights.0"))


async def duplicate_despite_detection(both: LocalPair, folder: Path) -> None:  # noqa: ARG001 - one signature for all
    await send_to_primary(both, DEDUPLICATED, make_message(f"{DEDUPLICATED}.0"))


async def leave_in_backlog(both: LocalPair, folder: Path) -> None:
    Journal(folder, "late").record("flights", ["flights.late"])
    await both.put_into_backlog("flights", [make_message("flights.late")])


async def drop_ledger_record(both: LocalPair, folder: Path) -> None:  # noqa: ARG001 - one signature for all
    [path] = (folder / LEDGERS).glob("*.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))


Defect: TypeAlias = Callable[[LocalPair, Path], Coroutine[Any, Any, None]]


async def test_a_run_without_faults_holds(run_without_faults: LocalPair, tmp_path: Path) -> None:
    verdict = await current_verdict(run_without_faults, tmp_path)
    assert verdict.holds, verdict
    assert (verdict.sent, verdict.ledger.delivered, verdict.ledger.syphoned) == (30, 30, 15)


@pytest.mark.parametrize(
    ("plant", "findings"),
    [
        (remove_message, {"lost": 1}),
        (change_body, {"damaged": 1}),
        (leave_backlog_property, {"damaged": 1}),
        (duplicate_message, {"duplicates": 1}),
        (duplicate_despite_detection, {"duplicates_after_detection": 1}),
        (leave_in_backlog, {"stuck": 1, "missing_in_ledger": 1}),
        (drop_ledger_record, {"missing_in_ledger": 1}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_each_planted_defect_is_the_only_finding(
    run_without_faults: LocalPair, tmp_path: Path, plant: Defect, findings: dict[str, int]
) -> None:
    await plant(run_without_faults, tmp_path)
    verdict = await current_verdict(run_without_faults, tmp_path)
    counted = ("lost", "damaged", "stuck", "duplicates", "duplicates_after_detection", "missing_in_ledger")
    assert {name: getattr(verdict, name) for name in counted if getattr(verdict, name)} == findings
    # At-least-once delivery allows duplicates where the entity does not detect them.
    assert verdict.holds == (plant is duplicate_message)
