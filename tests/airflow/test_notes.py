"""What tasks note of their sends."""

from __future__ import annotations

import math
from typing import Any

from servicebus_pair.core.events import (
    SLOT_SECONDS,
    DeadLettered,
    MessageRef,
    MessagesAccepted,
    MessagesSyphoned,
    Route,
)
from servicebus_pair.hooks.notes import TaskNotes
from tests.airflow.conftest import CONN_ID, Pair, RunDag, run_task
from tests.airflow.test_sending import provision, send

NOW = 1_000_000 * SLOT_SECONDS + 10.0
DAY = 86_400


def kept() -> list[dict[str, Any]]:
    """The notes of all tasks, as the database holds them."""
    import json

    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    found = select(TaskStateStoreModel.value).where(TaskStateStoreModel.key == f"servicebus_pair/{CONN_ID}")
    with create_session() as session:
        return [json.loads(value) for value in session.scalars(found.order_by(TaskStateStoreModel.id))]


def refs(count: int) -> tuple[MessageRef, ...]:
    return tuple(MessageRef(str(number), 100) for number in range(count))


def test_a_task_that_sends_keeps_what_it_sent_by_route_and_what_that_cost(pair: Pair, run_dag: RunDag):
    before = len(kept())
    run_task(run_dag, provision, send)

    notes = kept()[before:]

    assert [note["entities"] for note in notes] == [{}, {"flights": [2, 0]}]
    assert notes[0]["operations"]["management_calls"] > 0
    assert (sum(primary for _, primary, _ in notes[1]["sends"]), notes[1]["operations"]["sends"]) == (2, 2)
    assert pair.primary["contoso"]


def test_sums_are_by_slot_and_entity_and_those_older_than_a_day_are_forgotten():
    notes = TaskNotes(CONN_ID, goes_on=False, now=lambda: NOW - 10)
    notes.observe(MessagesAccepted("flights", Route.PRIMARY, None, refs(3), NOW - SLOT_SECONDS))
    notes.observe(MessagesAccepted("Flights", Route.BACKLOG, "q", refs(2), NOW))
    notes.observe(MessagesAccepted("flights", Route.PRIMARY, None, refs(9), NOW - DAY - SLOT_SECONDS))
    notes.observe(MessagesSyphoned("Flights", "q", refs(30), NOW - 5))
    notes.observe(DeadLettered("q", "m", "TooLarge", NOW))

    sums = notes._sums(NOW, {"sends": 12})

    assert sums["sends"] == [[999_999, 3, 0], [1_000_000, 0, 2]]
    assert sums["entities"] == {"flights": [12, 2]}
    assert sums["home"] == {"flights": 30}
    assert (sums["syphoned"], sums["dead_lettered"], sums["operations"]) == (30, {"TooLarge": 1}, {"sends": 12})
    assert math.isclose(sums["per_second"], 3.0)
    assert notes._sums(NOW + 60, {})["per_second"] == 0


def test_a_try_goes_on_where_the_one_before_it_was_killed():
    notes = TaskNotes(CONN_ID, now=lambda: NOW)
    notes._earlier = {"v": 1, "sends": [[1_000_000, 1, 0]], "entities": {"flights": [1, 0]}, "syphoned": 4}
    notes.observe(MessagesAccepted("flights", Route.PRIMARY, None, refs(2), NOW))

    sums = notes._sums(NOW, {})

    assert (sums["sends"], sums["entities"], sums["syphoned"]) == ([[1_000_000, 3, 0]], {"flights": [3, 0]}, 4)
