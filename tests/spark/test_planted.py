"""Reconcile finds what was planted, all of it and nothing else, and judges as the pure rules do (SPEC section 9).

Ten histories are made up from seeds, each with losses, duplicates, dead letters, waits and overtaken messages of
sessions in an entity of its own, and put into ledgers and queues for real. One job looks through all of them.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import statistics
import uuid
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from pyspark.sql import SparkSession

from servicebus_pair.core import Bridge, read_pair
from servicebus_pair.core.administration import ServiceBusAdministration
from servicebus_pair.core.costs import Operations
from servicebus_pair.core.ledger_costs import operations_of
from servicebus_pair.core.overtaking import Arrival, in_order
from servicebus_pair.core.prober import PING_CONTENT_TYPE
from servicebus_pair.core.reconcile import History as Known
from servicebus_pair.core.reconcile import Outcome, Totals, Verdict, judge
from servicebus_pair.spark.jobs import reconcile as job
from tests.spark.conftest import BACKLOG_QUEUES, Pair
from tests.spark.diverting import OwnBacklog, own_backlog
from tests.spark.histories import Fate, History, history
from tests.spark.planting import BYTES, found, places_of, plant, subscriptions, write_ledger
from tests.system.demo.layout import PROJECT

pytestmark = pytest.mark.slow
SEEDS = range(10)
TORN = '{"v":1,"kind":"sent","id":"m-0","ent'


@dataclass(frozen=True)
class Proof:
    """What was planted, and what the job made of it."""

    histories: Sequence[History]
    status: int
    folder: Path
    summary: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]]

    def rows(self, name: str, planted: History) -> list[dict[str, Any]]:
        return [row for row in self.tables[name] if row["entity"] == planted.entity]


@pytest.fixture(scope="module")
def proof(spark: SparkSession, pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Proof:
    home = tmp_path_factory.mktemp("planted")
    own = own_backlog(pair, home, f"own-{uuid.uuid4().hex[:8]}")
    histories = [
        history(seed, f"planted-{uuid.uuid4().hex[:6]}-{seed}", is_topic=seed % 2 == 1, queues=own.queues)
        for seed in SEEDS
    ]
    with Bridge() as bridge:
        bridge.run(make_entities(own, histories))
    strays = [
        ServiceBusMessage(b"x", message_id="no path"),
        ServiceBusMessage(b"x", message_id="no text", application_properties={"x-ms-path": 5}),
        ServiceBusMessage(b"x", message_id="stranger", application_properties={"x-ms-path": "somebody-else"}),
        ServiceBusMessage(b"", content_type=PING_CONTENT_TYPE),
    ]
    asyncio.run(plant(own.primary.connection_string, own.secondary.connection_string, histories, strays=strays))
    for each in histories:
        write_ledger(home / "ledger", each)
    (home / "ledger" / "killed.jsonl").write_text(TORN)
    places = [f"{place}={each.entity}" for each in histories for place in places_of(each)]
    output = home / "proof"
    status = job.main(
        [
            "--pair",
            own.reference,
            "--ledger",
            str(home / "ledger"),
            "--entities",
            ",".join(places),
            "--output",
            str(output),
        ]
    )
    names = ("verdicts", "summary", "incidents", "sessions", "overtaken", "flow")
    tables = {name: [row.asDict() for row in spark.read.parquet(str(output / name)).collect()] for name in names}
    return Proof(histories, status, output, json.loads((output / "summary.json").read_text()), tables)


async def make_entities(own: OwnBacklog, histories: Iterable[History]) -> None:
    async with ServiceBusAdministration(read_pair(own.settings).primary) as administration:
        client = administration._client
        for each in histories:
            if each.is_topic:
                await client.create_topic(each.entity)
            else:
                await client.create_queue(each.entity, dead_lettering_on_message_expiration=True)
            for name in subscriptions(each):
                await client.create_subscription(each.entity, name, dead_lettering_on_message_expiration=True)


def by_the_rules(planted: History) -> dict[str, Verdict]:
    """What the pure rules say of what was planted."""
    return {
        each.message_id: judge(
            Known(each.message_id, planted.entity, each.sent, each.syphoned, found(planted, each)),
            places=places_of(planted),
            incidents=planted.incidents,
        )
        for each in planted.messages
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_every_column_of_every_verdict_is_that_of_the_pure_rules(proof: Proof, seed: int):
    planted = proof.histories[seed]
    rows = {row["message_id"]: row for row in proof.rows("verdicts", planted)}
    assert rows == {name: asdict(verdict) for name, verdict in by_the_rules(planted).items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_planted_one_is_found_and_nothing_else(proof: Proof, seed: int):
    planted = proof.histories[seed]
    rows = {row["message_id"]: row for row in proof.rows("verdicts", planted)}
    judged = {name: (row["outcome"], row["duplicates"], row["duplicates_predicted"]) for name, row in rows.items()}
    assert judged == {each.message_id: each.expected for each in planted.messages}
    assert {"lost", "dead-lettered", "waiting", "unrecorded"} < {outcome for outcome, _, _ in judged.values()}
    overtaken = proof.rows("overtaken", planted)
    assert len(overtaken) == len(planted.overtaken) * len(places_of(planted))
    assert {(row["message_id"], row["overtaken_by"]) for row in overtaken} == planted.overtaken
    incidents = proof.rows("incidents", planted)
    spans = {(row["number"], row["began"], row["ended"]) for row in incidents}
    assert spans == {(each.number, each.began, each.ended) for each in planted.incidents}


@pytest.mark.parametrize("seed", SEEDS)
def test_sums_and_waits_are_those_of_the_verdicts_by_entity_and_by_incident(proof: Proof, seed: int):
    planted = proof.histories[seed]
    verdicts = list(by_the_rules(planted).values())
    (of_entity,) = proof.rows("summary", planted)
    assert_figures(of_entity, verdicts)
    assert proof.summary["entities"][planted.entity] == {
        name: of_entity[name] for name in of_entity if name != "entity"
    }
    late = {name for name, _ in planted.overtaken}
    for row in proof.rows("incidents", planted):
        part = [verdict for verdict in verdicts if verdict.incident == row["number"]]
        assert_figures(row, part)
        assert row["out_of_order"] == len(places_of(planted)) * sum(verdict.message_id in late for verdict in part)
        assert row["home_at"] == max((each.moved_at for each in part if each.moved_at is not None), default=None)


def assert_figures(row: dict[str, Any], verdicts: Sequence[Verdict]) -> None:
    expected = asdict(Totals.of_all(verdicts))
    assert {name: row[name] for name in expected} == pytest.approx(expected)
    waits = [each.wait_seconds for each in verdicts if each.wait_seconds is not None]
    if len(waits) > 1:
        percentiles = statistics.quantiles(waits, n=20, method="inclusive")
        assert row["wait_median_seconds"] == pytest.approx(percentiles[9], abs=1e-3)
        assert row["wait_p95_seconds"] == pytest.approx(percentiles[18], abs=1e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_each_session_is_as_the_pure_rule_judges_it(proof: Proof, seed: int):
    planted = proof.histories[seed]
    expected = dict(sessions_by_the_rule(planted))
    rows = {
        (row["place"], row["session"]): (row["messages"], row["out_of_order"])
        for row in proof.rows("sessions", planted)
    }
    assert rows == {(place, session): each for place in places_of(planted) for session, each in expected.items()}
    (of_entity,) = proof.rows("summary", planted)
    places = len(places_of(planted))
    assert of_entity["sessions"] == places * len(expected)
    assert of_entity["session_messages"] == places * sum(messages for messages, _ in expected.values())
    assert of_entity["out_of_order"] == places * len(planted.overtaken)


def sessions_by_the_rule(planted: History) -> Iterable[tuple[str, tuple[int, int]]]:
    """Each session: how many messages it has, and how many of them came out of order."""
    accepted = [name for batch in planted.batches if not batch.moved for name in batch.ids]
    lines = {name: line for line, name in reversed(list(enumerate(accepted)))}
    arrived: defaultdict[str, list[Arrival]] = defaultdict(list)
    for name in dict.fromkeys(planted.arrivals):
        message = planted.by_id[name]
        if message.session is not None and message.sent and message.fate is not Fate.SCHEDULED:
            first = min(sent.at for sent in message.sent)
            arrived[message.session].append(Arrival(name, (first, 0, lines[name])))
    for session, arrivals in arrived.items():
        yield session, (len(arrivals), sum(each.by is not None for each in in_order(arrivals)))


def test_the_whole_is_the_sum_and_strays_are_told_apart(proof: Proof):
    judged = [verdict for each in proof.histories for verdict in by_the_rules(each).values()]
    expected = asdict(Totals.of_all(judged))
    assert {name: proof.summary["totals"][name] for name in expected} == pytest.approx(expected)
    assert proof.status == 1, "messages are lost"
    assert proof.summary["unaddressed"] == 2 * BACKLOG_QUEUES
    assert proof.summary["unexamined"] == {"somebody-else": BACKLOG_QUEUES}
    assert proof.summary["pings"] == 0, "the service drops them"
    assert proof.summary["ledger"]["torn"] == 1
    lost = {f"{verdict.entity} {verdict.message_id}" for verdict in judged if verdict.outcome is Outcome.LOST}
    assert set(proof.summary["examples"]["lost"]) <= lost


def test_the_flow_counts_each_message_once_a_way(proof: Proof):
    totals = proof.summary["totals"]
    for way in ("primary", "diverted", "syphoned"):
        assert sum(row["messages"] for row in proof.tables["flow"] if row["way"] == way) == totals[way]
    steps = sorted({row["at"] for row in proof.tables["flow"]})
    assert all(math.isclose((at - steps[0]) % proof.tables["flow"][0]["seconds"], 0.0) for at in steps)
    assert len(steps) <= 241


def test_the_cost_is_that_of_the_records(proof: Proof):
    batches = [batch for each in proof.histories for batch in each.batches]
    names = [
        name
        for batch in batches
        for name in operations_of("syphoned" if batch.moved else "sent", str(batch.route), size_bytes=BYTES)
        for _ in batch.ids
    ]
    counted = {name: len(list(group)) for name, group in groupby(sorted(names))}
    assert proof.summary["cost"]["operations"] == counted
    assert proof.summary["cost"]["total"] == Operations(**counted).total


def test_the_tables_are_those_that_the_page_of_spark_lists(proof: Proof):
    section = (PROJECT / "provider" / "docs" / "spark.md").read_text().split("### `reconcile`")[1].split("### ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    assert sorted(listed) == sorted(folder.name for folder in proof.folder.iterdir() if folder.is_dir())
    for name in re.findall(r"`(\w+)`", section.split("| `verdicts` |")[1].split("\n")[0]):
        assert name in proof.tables["verdicts"][0]


def test_the_page_says_what_was_lost_first(proof: Proof):
    page = (proof.folder / "report.html").read_text()
    assert f"<b>{proof.summary['totals']['lost']} messages are lost.</b>" in page
    assert page.count('fill="var(--shade)"') > 1
