"""Kills, freezes and resets of every process lose nothing (SPEC sections 1 and 6); the long run is `make chaos`."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceiveMode
from azure.servicebus.aio import ServiceBusClient

from servicebus_pair.core import PairOptions
from servicebus_pair.core.ledger import Ledger
from tests.core.hosted import Hosted, hosted
from tests.system.chaos.__main__ import run
from tests.system.chaos.load import DETECTING, ENTITIES, Journal, message
from tests.system.chaos.verdict import Verdict, judge, take_stock
from tests.system.chaos.worker import LEDGERS, QUEUES

EACH = 5


@pytest.mark.system
@pytest.mark.slow
async def test_a_short_run_of_chaos_loses_nothing_and_what_is_detected_comes_once(tmp_path: Path) -> None:
    verdict = await run(seconds=8, seed=7, folder=tmp_path, lock="PT5S")
    assert verdict.sent > 0
    assert verdict.kills + verdict.faults > 0
    assert verdict.ledger.sent >= verdict.sent
    assert verdict.holds, verdict


@pytest.fixture
async def quiet_run(tmp_path: Path) -> AsyncIterator[Hosted]:
    """Namespaces after a run in which nothing went wrong, with its journal and its ledger in the test's folder."""
    journal = Journal(tmp_path, "sender")
    with Ledger(tmp_path / LEDGERS, run="quiet") as ledger:
        options = PairOptions(backlog_queue_count=QUEUES)
        async with hosted(*ENTITIES, options=options, observers=[ledger]) as both:
            for entity in ENTITIES:
                both.pair.fail_over(entity, reason="half of them are diverted")
                for numbers in (range(EACH), range(EACH, 2 * EACH)):
                    async with both.pair.sender(entity) as sender:
                        result = await sender.send([message(f"{entity}.{n}") for n in numbers])
                    journal.accepted(entity, result.message_ids)
                    both.pair.mark_healthy(entity)
            await both.pair.syphon().drain()
            yield both


async def verdict_on(both: Hosted, folder: Path) -> Verdict:
    stock = await take_stock(both.primary.connection_string, both.secondary.connection_string)
    return judge(stock, folder, done=Counter(), seconds=0, seed=0)


async def take_one(both: Hosted, folder: Path) -> None:  # noqa: ARG001 - as the others
    """Planted: a message disappears."""
    async with (
        ServiceBusClient.from_connection_string(both.primary.connection_string) as client,
        client.get_queue_receiver("flights", receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver,
    ):
        assert len(await receiver.receive_messages(max_message_count=1)) == 1


async def put(both: Hosted, entity: str, what: ServiceBusMessage) -> None:
    async with (
        ServiceBusClient.from_connection_string(both.primary.connection_string) as client,
        client.get_queue_sender(entity) as sender,
    ):
        await sender.send_messages(what)


async def change_one(both: Hosted, folder: Path) -> None:
    """Planted: a message has another body."""
    await take_one(both, folder)
    [name] = {f"flights.{n}" for n in range(2 * EACH)} - set(await both.ids("flights"))
    like = message(name)
    await put(
        both,
        "flights",
        ServiceBusMessage(
            b"another",
            message_id=name,
            session_id=like.session_id,
            subject=like.subject,
            application_properties=like.application_properties,
        ),
    )


async def leave_a_trace(both: Hosted, folder: Path) -> None:
    """Planted: the syphon leaves a property of its own behind."""
    await take_one(both, folder)
    [name] = {f"flights.{n}" for n in range(2 * EACH)} - set(await both.ids("flights"))
    changed = message(name)
    changed.application_properties = {**(changed.application_properties or {}), "x-ms-path": "flights"}
    await put(both, "flights", changed)


async def repeat_one(both: Hosted, folder: Path) -> None:  # noqa: ARG001 - as the others
    await put(both, "flights", message("flights.0"))


async def repeat_one_that_is_detected(both: Hosted, folder: Path) -> None:  # noqa: ARG001 - as the others
    await put(both, DETECTING, message(f"{DETECTING}.0"))


async def leave_one_behind(both: Hosted, folder: Path) -> None:
    """Planted: a message was accepted and nobody moved it."""
    Journal(folder, "late").accepted("flights", ["flights.late"])
    await both.put_into_backlog("flights", [message("flights.late")])


async def forget_the_ledger(both: Hosted, folder: Path) -> None:  # noqa: ARG001 - as the others
    [path] = (folder / LEDGERS).glob("*.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))


Wrong: TypeAlias = Callable[[Hosted, Path], Coroutine[Any, Any, None]]


async def test_a_quiet_run_holds(quiet_run: Hosted, tmp_path: Path) -> None:
    verdict = await verdict_on(quiet_run, tmp_path)
    assert verdict.holds, verdict
    assert (verdict.sent, verdict.ledger.delivered, verdict.ledger.syphoned) == (30, 30, 15)


@pytest.mark.parametrize(
    ("plant", "findings"),
    [
        (take_one, {"lost": 1}),
        (change_one, {"damaged": 1}),
        (leave_a_trace, {"damaged": 1}),
        (repeat_one, {"duplicates": 1}),
        (repeat_one_that_is_detected, {"duplicates_after_detection": 1}),
        (leave_one_behind, {"stuck": 1, "missing_in_ledger": 1}),
        (forget_the_ledger, {"missing_in_ledger": 1}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_what_is_planted_is_found_and_nothing_else(
    quiet_run: Hosted, tmp_path: Path, plant: Wrong, findings: dict[str, int]
) -> None:
    await plant(quiet_run, tmp_path)
    verdict = await verdict_on(quiet_run, tmp_path)
    counted = ("lost", "damaged", "stuck", "duplicates", "duplicates_after_detection", "missing_in_ledger")
    assert {name: getattr(verdict, name) for name in counted if getattr(verdict, name)} == findings
    # Copies too many, where nothing detects them, are what "at least once" allows.
    assert verdict.holds == (plant is repeat_one)
