"""Totals that tasks save in their state."""

from __future__ import annotations

import math

import pytest

from servicebus_pair.airflow_runtime.observers.task_activity import TaskActivity
from servicebus_pair.core.model.events import (
    SLOT_SECONDS,
    DeadLettered,
    MessageRef,
    MessagesAccepted,
    MessagesSyphoned,
    MessagesUnspooled,
    Route,
)
from tests.airflow.conftest import CONN_ID, RunDag, run_task
from tests.airflow.support.database import saved_activity
from tests.airflow.support.tasks import provision, send

NOW = 1_000_000 * SLOT_SECONDS + 10.0
DAY = 86_400


def message_refs(count: int) -> tuple[MessageRef, ...]:
    return tuple(MessageRef(str(number), 100) for number in range(count))


@pytest.mark.usefixtures("pair")
def test_a_send_task_saves_counts_by_route_and_operations(run_dag: RunDag):
    before = len(saved_activity())
    run_task(run_dag, provision, send)

    notes = saved_activity()[before:]

    assert [note["entities"] for note in notes] == [{}, {"flights": [2, 0, 0]}]
    assert notes[0]["operations"]["management_calls"] > 0
    assert (sum(primary for _, primary, *_ in notes[1]["sends"]), notes[1]["operations"]["sends"]) == (2, 2)


def test_totals_are_by_slot_and_entity_and_expire_after_a_day():
    notes = TaskActivity(CONN_ID, resume=False, now=lambda: NOW - 10)
    notes.observe(MessagesAccepted("flights", Route.PRIMARY, None, message_refs(3), NOW - SLOT_SECONDS))
    notes.observe(MessagesAccepted("Flights", Route.BACKLOG, "q", message_refs(2), NOW))
    notes.observe(MessagesAccepted("flights", Route.PRIMARY, None, message_refs(9), NOW - DAY - SLOT_SECONDS))
    notes.observe(MessagesSyphoned("Flights", "q", message_refs(30), NOW - 5))
    notes.observe(DeadLettered("q", "m", "TooLarge", NOW))
    notes.observe(MessagesAccepted("flights", Route.SPOOLED, None, message_refs(4), NOW))
    notes.observe(MessagesUnspooled("flights", Route.PRIMARY, None, message_refs(15), NOW))

    sums = notes._totals(NOW, {"sends": 12})

    assert sums["sends"] == [[999_999, 3, 0, 0], [1_000_000, 0, 2, 4]]
    assert sums["entities"] == {"flights": [12, 2, 4]}
    assert sums["unspooled"] == 15
    assert sums["syphoned_by_entity"] == {"flights": 30}
    assert (sums["syphoned"], sums["dead_lettered"], sums["operations"]) == (30, {"TooLarge": 1}, {"sends": 12})
    assert math.isclose(sums["per_second"], 4.5)
    assert notes._totals(NOW + 60, {})["per_second"] == 0


def test_a_retry_continues_the_totals_of_the_previous_try():
    notes = TaskActivity(CONN_ID, now=lambda: NOW)
    notes._earlier = {"v": 1, "sends": [[1_000_000, 1, 0]], "entities": {"flights": [1, 0]}, "syphoned": 4}
    notes.observe(MessagesAccepted("flights", Route.PRIMARY, None, message_refs(2), NOW))

    sums = notes._totals(NOW, {})

    assert (sums["sends"], sums["entities"], sums["syphoned"]) == ([[1_000_000, 3, 0, 0]], {"flights": [3, 0, 0]}, 4)
