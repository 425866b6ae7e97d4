"""Killing, freezing and resetting every process loses no message (SPEC sections 1 and 6); `make chaos` runs longer."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core import PairOptions
from servicebus_pair.core.ledger.reconcile import Found, Location
from servicebus_pair.core.ledger.totals import Totals
from servicebus_pair.core.ledger.writer import Ledger
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths
from tests.core.support.local_pair import open_local_pair
from tests.system.chaos.__main__ import run
from tests.system.chaos.messages import DEDUPLICATED, ENTITIES, Journal, is_unchanged, make_message, session_of
from tests.system.chaos.verdict import QueueContents, Verdict, peek_queues, verdict_on
from tests.system.chaos.worker import LEDGERS, QUEUES

MESSAGES = 5
FLIGHT = ("flights", "flights.0")


@pytest.mark.system
@pytest.mark.slow
@pytest.mark.parametrize(("ordering", "spools"), [("none", False), ("session", False), ("none", True)])
async def test_a_short_chaos_run_loses_no_message_and_keeps_order_where_promised(
    tmp_path: Path, ordering: str, spools: bool
) -> None:
    seconds, seed = (15, 3) if spools else (8, 7)
    verdict = await run(seconds=seconds, seed=seed, folder=tmp_path, lock="PT5S", ordering=ordering, spools=spools)
    assert verdict.sent > 0
    assert (verdict.spooled > 0) is spools
    assert verdict.kills + verdict.faults > 0
    assert verdict.ledger.sent >= verdict.sent
    assert verdict.holds, verdict


@pytest.fixture(scope="module")
def clean_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[QueueContents, Path]:
    """The queues after a run without faults, and the folder of its journal and ledger."""
    folder = tmp_path_factory.mktemp("run")
    return asyncio.run(run_without_faults(folder)), folder


async def run_without_faults(folder: Path) -> QueueContents:
    journal = Journal(folder, "sender")
    with Ledger(folder / LEDGERS, run="without-faults") as ledger:
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
            return await peek_queues(both.primary.connection_string, both.secondary.connection_string)


def verdict(contents: QueueContents, folder: Path) -> Verdict:
    return verdict_on(contents, folder, actions=Counter(), seconds=0, seed=0)


def test_a_run_without_faults_holds(clean_run: tuple[QueueContents, Path]) -> None:
    found = verdict(*clean_run)
    assert found.holds, found
    assert (found.sent, found.ledger.delivered, found.ledger.syphoned) == (30, 30, 15)


def lose(contents: QueueContents, folder: Path) -> QueueContents:  # noqa: ARG001 - one signature for all
    return replace(contents, found={key: contents.found[key] for key in contents.found if key != FLIGHT})


def damage(contents: QueueContents, folder: Path) -> QueueContents:  # noqa: ARG001 - one signature for all
    return replace(contents, damaged=1)


def duplicate(contents: QueueContents, folder: Path) -> QueueContents:  # noqa: ARG001 - one signature for all
    return replace(contents, found={**contents.found, FLIGHT: contents.found[FLIGHT] * 2})


def duplicate_despite_detection(contents: QueueContents, folder: Path) -> QueueContents:  # noqa: ARG001 - the same
    key = DEDUPLICATED, f"{DEDUPLICATED}.0"
    return replace(contents, found={**contents.found, key: contents.found[key] * 2})


def leave_in_backlog(contents: QueueContents, folder: Path) -> QueueContents:
    Journal(folder, "late").record("flights", ["flights.99"])
    left = Found(backlog_queue_paths("contoso", QUEUES)[0], Location.BACKLOG)
    return replace(contents, found={**contents.found, ("flights", "flights.99"): [left]})


def drop_ledger_record(contents: QueueContents, folder: Path) -> QueueContents:
    [path] = (folder / LEDGERS).rglob("*.jsonl")
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))
    return contents


@pytest.mark.parametrize(
    ("plant", "findings"),
    [
        (lose, {"lost": 1}),
        (damage, {"damaged": 1}),
        (duplicate, {"duplicates": 1}),
        (duplicate_despite_detection, {"duplicates_after_detection": 1}),
        (leave_in_backlog, {"stuck": 1, "missing_in_ledger": 1}),
        (drop_ledger_record, {"missing_in_ledger": 1}),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_each_planted_defect_is_the_only_finding(
    clean_run: tuple[QueueContents, Path],
    tmp_path: Path,
    plant: Callable[[QueueContents, Path], QueueContents],
    findings: dict[str, int],
) -> None:
    contents, folder = clean_run
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    found = verdict(plant(contents, tmp_path), tmp_path)
    counted = ("lost", "damaged", "stuck", "duplicates", "duplicates_after_detection", "missing_in_ledger")
    assert {name: getattr(found, name) for name in counted if getattr(found, name)} == findings
    # At-least-once delivery allows duplicates where the entity does not detect them.
    assert found.holds == (plant is duplicate)


def test_a_message_that_arrived_after_a_later_one_of_its_session_is_out_of_order(tmp_path: Path) -> None:
    (tmp_path / LEDGERS).mkdir()
    session = session_of("a.0")
    numbers = [n for n in range(200) if session_of(f"a.{n}") == session][:4]
    other = next(n for n in range(200) if session_of(f"a.{n}") != session)
    order = [numbers[0], numbers[2], numbers[1], other, numbers[3]]
    Journal(tmp_path, "a").record("flights", [f"a.{n}" for n in order if n != numbers[3]])
    found = {("flights", f"a.{n}"): [Found("flights", Location.ACTIVE)] for n in order}
    for ordering in ("none", "session"):
        judged = verdict_on(
            QueueContents(found, 0), tmp_path, actions=Counter(), seconds=0, seed=0, ordering=ordering, elsewhere=0
        )
        assert judged.disorder == 1
        assert replace(judged, missing_in_ledger=0, ledger=Totals()).holds is (ordering == "none")
    assert verdict_on(QueueContents(found, 0), tmp_path, actions=Counter(), seconds=0, seed=0, elsewhere=3).stuck == 3


def test_a_message_with_another_body_or_property_is_damaged() -> None:
    message = make_message("flights.0")
    assert is_unchanged(message)
    message.application_properties = {**(message.application_properties or {}), "x-ms-path": "flights"}
    assert not is_unchanged(message)
    sent = make_message("flights.0")
    other = ServiceBusMessage(
        b"another",
        message_id=sent.message_id,
        session_id=sent.session_id,
        subject=sent.subject,
        application_properties=sent.application_properties,
    )
    assert not is_unchanged(other)
