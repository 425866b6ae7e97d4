"""The engine classifies messages as the pure rules do (SPEC section 9), whatever their history."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from servicebus_pair.core.ledger.incidents import Incident
from servicebus_pair.core.ledger.reconcile import Found, History, Location, Sent, Syphoned, Verdict, classify
from servicebus_pair.core.ledger.session_order_check import Arrival, check_order
from servicebus_pair.core.ledger.totals import Totals
from servicebus_pair.core.model.events import Route
from servicebus_pair.spark.analysis.classification import (
    _entity_incidents,
    classify_messages,
    kept_in_unseen_spools,
    sum_by_incident,
)
from servicebus_pair.spark.analysis.peeking import PEEKED_SCHEMA
from servicebus_pair.spark.analysis.session_order import check_session_order

PATHS = {"flights": ("Flights",), "delays": ("delays/Subscriptions/all", "delays/Subscriptions/Late")}
INCIDENTS = {
    "flights": (Incident(1, 10.0, 20.0), Incident(2, 20.5, 40.0)),
    "delays": (Incident(1, 0.0, 5.0),),
}
BACKLOG = "contoso/x-servicebus-transfer/0"
RECORD = (
    "kind string, id string, digest string, entity string, route string, queue string, at double, run string, "
    "spool string"
)
SPOOLS = (None, "here", "there")
DIGESTS = (None, "a", "a", "a", "b")
COUNT = 3000


def random_history(random: Random, number: int) -> History:
    entity = random.choice(sorted(PATHS))
    sent = tuple(
        Sent(
            random.choice(list(Route)),
            float(random.randint(0, 45)),
            BACKLOG,
            random.choice("rs"),
            random.choice(DIGESTS),
            random.choice(SPOOLS),
        )
        for _ in range(random.choice((0, 1, 1, 1, 2, 3)))
    )
    moved = tuple(
        Syphoned(
            float(random.randint(0, 60)),
            BACKLOG,
            random.choice((Route.PRIMARY, Route.PRIMARY, Route.BACKLOG)),
            random.choice(SPOOLS),
        )
        for _ in range(random.choice((0, 0, 0, 1, 2)))
    )
    return History(f"m-{number}", entity, sent, moved, tuple(copies(random, entity)))


def copies(random: Random, entity: str) -> Iterator[Found]:
    for _ in range(random.choice((0, 0, 1, 1, 2, 3))):
        location = random.choice(list(Location))
        inside = random.choice(PATHS[entity])
        place = {Location.RECEIPT: ""}.get(location, BACKLOG if location.startswith("backlog") else inside)
        digest = None if location is Location.RECEIPT else random.choice(DIGESTS)
        yield Found(place if random.random() < 0.5 else place.upper(), location, digest=digest)


def record_rows(histories: Sequence[History]) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = []
    for each in histories:
        for sent in each.sent:
            known = ("sent", each.message_id, sent.digest, each.entity.upper(), str(sent.route), sent.queue, sent.at)
            rows.append((*known, sent.run, sent.spool))
        for moved in each.syphoned:
            known = (kind_of(moved), each.message_id, None, each.entity, str(moved.route), moved.queue, moved.at)
            rows.append((*known, "drain", moved.spool))
    return rows


def kind_of(moved: Syphoned) -> str:
    """Half of the moves to the primary came from the spool."""
    return "syphoned" if moved.route is Route.PRIMARY and int(moved.at) % 2 else "unspooled"


def found_rows(histories: Sequence[History]) -> list[dict[str, Any]]:
    return [
        {"entity": each.entity, "id": each.message_id, "place": found.place, "location": str(found.location)}
        | {"session": None, "number": 1, "digest": found.digest}
        for each in histories
        for found in each.found
    ]


@pytest.mark.parametrize(("run", "examined"), [(None, ()), ("r", ("here",))])
def test_engine_agrees_with_the_pure_rules(run: str | None, examined: tuple[str, ...], spark: SparkSession):
    random = Random(f"classification {run}")  # noqa: S311  a test
    histories = [random_history(random, number) for number in range(COUNT)]
    records = spark.createDataFrame(record_rows(histories), RECORD)
    table = classify_messages(
        records,
        spark.createDataFrame(PEEKED_SCHEMA.table(found_rows(histories))),
        paths=PATHS,
        incidents=INCIDENTS,
        run=run,
        kept=kept_in_unseen_spools(records, examined=examined),
    ).persist()
    expected = {
        each.message_id: classify(
            each,
            receiving_entities=PATHS[each.entity],
            incidents=INCIDENTS[each.entity],
            examined_spools=examined,
            run=run,
        )
        for each in histories
        if (each.sent or each.syphoned or each.found)
        and (run is None or not each.sent or any(sent.run == run for sent in each.sent))
    }
    assert {row["message_id"]: row.asDict() for row in table.collect()} == {
        name: asdict(verdict) for name, verdict in expected.items()
    }
    assert sum_by_incident(table) == {
        key: Totals.of_all(of_key)
        for key in {(each.entity, each.incident) for each in expected.values()}
        if (of_key := [each for each in expected.values() if (each.entity, each.incident) == key])
    }
    assert len({each.outcome for each in expected.values()}) == len(outcomes_of(expected.values())) == 7
    table.unpersist()


def outcomes_of(verdicts: Any) -> set[str]:
    return {str(each.outcome) for each in verdicts if isinstance(each, Verdict)}


def test_engine_agrees_with_the_pure_rule_of_session_order(spark: SparkSession):
    random = Random("order")  # noqa: S311  a test
    arrived: list[dict[str, Any]] = []
    records: list[tuple[Any, ...]] = []
    expected: dict[str, str | None] = {}
    for session in range(40):
        ids = [f"{session}-{number}" for number in range(random.randint(1, 30))]
        # Few times, so that many messages were accepted at once, in the order of their lines.
        sent = {name: (float(random.randint(0, 4)), 0, line) for line, name in enumerate(random.sample(ids, len(ids)))}
        records += [("sent", name, "flights", "r", *sent[name]) for name in ids]
        arrived += [
            {"entity": "flights", "id": name, "place": "flights", "location": "active", "session": f"s{session}"}
            | {"number": number, "digest": None}
            for number, name in enumerate(ids)
        ]
        expected |= {
            each.message_id: each.overtaken_by for each in check_order(Arrival(name, sent[name]) for name in ids)
        }
    ledger = spark.createDataFrame(
        records, "kind string, id string, entity string, run string, at double, block bigint, line bigint"
    )
    checked = check_session_order(ledger, spark.createDataFrame(PEEKED_SCHEMA.table(arrived)), run=None)
    assert {row["message_id"]: row["overtaken_by"] for row in checked.collect()} == expected
    assert any(expected.values())


def test_very_many_incidents_of_one_entity_become_a_thousand() -> None:
    """Each diverted message is compared with each incident of its entity."""
    minutes = range(0, 60 * 5000, 60)
    rows = [
        {"entity": "flights", "slot": at // 60}
        | {
            f"{name}_{end}": float(at + end_at) if at % 120 == of else None
            for end, end_at in (("first", 0), ("last", 1))
            for name, of in (("diverted", 0), ("direct", 60))
        }
        for at in minutes
    ]

    found = _entity_incidents(pa.Table.from_pylist(rows)).to_pylist()

    assert [len(found), found[0]["ended"], found[-1]["began"], found[-1]["ended"]] == [1000, 1.0, 119_880.0, 299_881.0]
