"""The reconcile job agrees with the pure rules (SPEC section 9).

Ten random histories, each with losses, duplicates, dead letters, waits and overtaken messages of one entity, are
written to real ledgers and queues. One job reconciles all of them.
"""

from __future__ import annotations

import asyncio
import re
import statistics
import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from pyspark.sql import SparkSession

from servicebus_pair.core.ledger.reconcile import History as Known
from servicebus_pair.core.ledger.reconcile import Outcome, Verdict, classify
from servicebus_pair.core.ledger.totals import Totals
from servicebus_pair.core.ledger.usage import operations_for_record
from servicebus_pair.core.pricing import Operations
from servicebus_pair.core.protocol.amqp_message import PING_CONTENT_TYPE
from servicebus_pair.core.sdk.administration.data_plane import ServiceBusAdministration
from servicebus_pair.spark.jobs import reconcile as job
from tests.spark.conftest import BACKLOG_QUEUES, Pair
from tests.spark.support.job_files import arguments, read_summary
from tests.spark.support.own_backlog import own_backlog
from tests.spark.support.planted_queues import BYTES, found, places_of, plant, subscriptions, write_ledger
from tests.spark.support.random_history import Fate, History, history
from tests.system.demo.layout import PROJECT

pytestmark = pytest.mark.slow
SEEDS = range(10)
TORN = '{"v":1,"kind":"sent","id":"m-0","ent'


@dataclass(frozen=True)
class Proof:
    histories: Sequence[History]
    status: int
    folder: Path
    summary: dict[str, Any]
    tables: dict[str, list[dict[str, Any]]]

    def rows(self, name: str, planted: History) -> list[dict[str, Any]]:
        return [row for row in self.tables[name] if row["entity"] == planted.entity]


@pytest.fixture(scope="module")
def proof(spark: SparkSession, pair: Pair, tmp_path_factory: pytest.TempPathFactory) -> Proof:
    folder = tmp_path_factory.mktemp("planted")
    own = own_backlog(pair, folder)
    histories = [
        history(seed, f"planted-{uuid.uuid4().hex[:6]}-{seed}", is_topic=seed % 2 == 1, queues=own.queues)
        for seed in SEEDS
    ]
    own.administer("primary", lambda administration: make_entities(administration, histories))
    strays = [
        ServiceBusMessage(b"x", message_id="no path"),
        ServiceBusMessage(b"x", message_id="no text", application_properties={"x-ms-path": 5}),
        ServiceBusMessage(b"x", message_id="stranger", application_properties={"x-ms-path": "unknown-entity"}),
        ServiceBusMessage(b"", content_type=PING_CONTENT_TYPE),
    ]
    asyncio.run(plant(own.primary.connection_string, own.secondary.connection_string, histories, strays=strays))
    for each in histories:
        write_ledger(folder / "ledger", each)
    (folder / "ledger" / "killed.jsonl").write_text(TORN)
    output = folder / "proof"
    options = {"--pair": own.reference, "--ledger": str(folder / "ledger"), "--output": str(output)}
    options["--entities"] = ",".join(f"{path}={each.entity}" for each in histories for path in places_of(each))
    status = job.main(arguments(options))
    names = ("verdicts", "summary", "incidents", "sessions", "overtaken", "flow")
    tables = {name: [row.asDict() for row in spark.read.parquet(str(output / name)).collect()] for name in names}
    return Proof(histories, status, output, read_summary(output), tables)


async def make_entities(administration: ServiceBusAdministration, histories: Iterable[History]) -> None:
    client = administration._client
    for each in histories:
        if each.is_topic:
            await client.create_topic(each.entity)
        else:
            await client.create_queue(each.entity, dead_lettering_on_message_expiration=True)
        for name in subscriptions(each):
            await client.create_subscription(each.entity, name, dead_lettering_on_message_expiration=True)


def expected_verdicts(planted: History) -> dict[str, Verdict]:
    return {
        each.message_id: classify(
            Known(each.message_id, planted.entity, each.sent, each.syphoned, found(planted, each)),
            receiving_entities=places_of(planted),
            incidents=planted.incidents,
        )
        for each in planted.messages
    }


@pytest.mark.parametrize("seed", SEEDS)
def test_verdicts_match_the_pure_rules(proof: Proof, seed: int):
    planted = proof.histories[seed]
    rows = {row["message_id"]: row for row in proof.rows("verdicts", planted)}
    assert rows == {name: asdict(verdict) for name, verdict in expected_verdicts(planted).items()}


@pytest.mark.parametrize("seed", SEEDS)
def test_planted_outcomes_are_found_exactly(proof: Proof, seed: int):
    planted = proof.histories[seed]
    rows = {row["message_id"]: row for row in proof.rows("verdicts", planted)}
    verdicts = {name: (row["outcome"], row["duplicates"], row["duplicates_predicted"]) for name, row in rows.items()}
    assert verdicts == {each.message_id: each.expected for each in planted.messages}
    assert {name for name, row in rows.items() if row["altered"]} == {
        each.message_id for each in planted.messages if each.fate is Fate.CHANGED
    }
    assert {"lost", "consumed", "dead-lettered", "waiting", "unrecorded"} < {
        outcome for outcome, _, _ in verdicts.values()
    }
    overtaken = proof.rows("overtaken", planted)
    assert len(overtaken) == len(planted.overtaken) * len(places_of(planted))
    assert {(row["message_id"], row["overtaken_by"]) for row in overtaken} == planted.overtaken
    (of_entity,) = proof.rows("summary", planted)
    assert of_entity["out_of_order"] == len(overtaken)
    incidents = proof.rows("incidents", planted)
    spans = {(row["number"], row["began"], row["ended"]) for row in incidents}
    assert spans == {(each.number, each.began, each.ended) for each in planted.incidents}


@pytest.mark.parametrize("seed", SEEDS)
def test_totals_and_waits_by_entity_and_incident(proof: Proof, seed: int):
    planted = proof.histories[seed]
    verdicts = list(expected_verdicts(planted).values())
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


def test_overall_totals_are_sums_and_strays_are_separate(proof: Proof):
    verdicts = [verdict for each in proof.histories for verdict in expected_verdicts(each).values()]
    expected = asdict(Totals.of_all(verdicts))
    assert {name: proof.summary["totals"][name] for name in expected} == pytest.approx(expected)
    assert proof.status == 1, "messages are lost"
    assert proof.summary["unaddressed"] == 2 * BACKLOG_QUEUES
    assert proof.summary["strangers"] == {"unknown-entity": BACKLOG_QUEUES}
    assert proof.summary["unexamined"] == {}, "the ledger has no record of them"
    assert proof.summary["judgement"] == "lost"
    changed = sum(each.fate is Fate.CHANGED for history in proof.histories for each in history.messages)
    assert proof.summary["totals"]["altered"] == changed
    assert proof.summary["pings"] == 0, "the service drops them"
    assert proof.summary["ledger"]["torn"] == 1
    lost = {f"{verdict.entity} {verdict.message_id}" for verdict in verdicts if verdict.outcome is Outcome.LOST}
    assert set(proof.summary["examples"]["lost"]) <= lost


def test_flow_counts_each_message_once_per_route(proof: Proof):
    totals = proof.summary["totals"]
    for way in ("primary", "diverted", "syphoned"):
        assert sum(row["messages"] for row in proof.tables["flow"] if row["way"] == way) == totals[way]


def test_cost_matches_the_ledger_records(proof: Proof):
    batches = [batch for each in proof.histories for batch in each.batches]
    counts = Counter[str]()
    for batch in batches:
        kind = "syphoned" if batch.moved else "sent"
        for _ in batch.ids:
            counts.update(operations_for_record(kind, str(batch.route), size_bytes=BYTES))
    counted = {name: count for name, count in counts.items() if count}
    assert proof.summary["cost"]["operations"] == counted
    assert proof.summary["cost"]["total"] == Operations(**counted).total


def test_documentation_lists_all_tables(proof: Proof):
    section = (PROJECT / "provider" / "docs" / "spark.md").read_text().split("### `reconcile`")[1].split("### ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, flags=re.MULTILINE)
    assert sorted(listed) == sorted(folder.name for folder in proof.folder.iterdir() if folder.is_dir())
    for name in re.findall(r"`(\w+)`", section.split("| `verdicts` |")[1].split("\n")[0]):
        assert name in proof.tables["verdicts"][0]
