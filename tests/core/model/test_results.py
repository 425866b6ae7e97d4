"""Results of operations: frozen values that add up."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.events import SLOT_SECONDS
from servicebus_pair.core.model.health_state import EntityHealth, HealthState
from servicebus_pair.core.model.pricing import Operations
from servicebus_pair.core.model.results import DrainReport, Progress, ProvisionReport, SendResult
from tests.examples import examples

counts = st.integers(0, 1000)
words = st.sampled_from(["a", "b", "c"])
sends = st.builds(
    SendResult,
    primary=counts,
    diverted=counts,
    backlog_queues=st.lists(words, max_size=3, unique=True).map(tuple),
    message_ids=st.lists(words, max_size=3).map(tuple),
)
drains = st.builds(
    DrainReport,
    moved=st.dictionaries(words, counts),
    dead_lettered=st.dictionaries(words, counts),
    left=counts,
    duplicates_possible=counts,
    failures=st.dictionaries(words, st.text(max_size=5)),
)


@pytest.mark.parametrize("empty", [SendResult(), DrainReport(), Operations(), EntityHealth(HealthState.HEALTHY)])
def test_without_figures_nothing_happened(empty: Any) -> None:
    assert [getattr(empty, each.name) for each in fields(empty) if getattr(empty, each.name)] in ([], ["healthy"])


def test_messages_are_counted_in_slots_of_five_minutes() -> None:
    assert SLOT_SECONDS == 5 * 60


@examples(100)
@given(parts=st.lists(sends, max_size=4))
def test_send_results_add_up_in_order(parts: list[SendResult]) -> None:
    total = SendResult.total(parts)
    assert total.sent == sum(part.sent for part in parts) == total.primary + total.diverted
    assert list(total.message_ids) == [name for part in parts for name in part.message_ids]
    assert set(total.backlog_queues) == {queue for part in parts for queue in part.backlog_queues}
    assert SendResult.total([total]) == total


def test_backlog_queues_are_unique_in_order_of_first_use() -> None:
    total = SendResult.total([SendResult(backlog_queues=("b", "a")), SendResult(backlog_queues=("c", "b"))])
    assert total.backlog_queues == ("b", "a", "c")


def test_repr_omits_message_ids() -> None:
    assert "message_ids" not in repr(SendResult(primary=1, message_ids=("1",)))


@examples(100)
@given(one=drains, two=drains)
def test_drain_reports_add_up(one: DrainReport, two: DrainReport) -> None:
    total = one + two
    assert total.moved_total == one.moved_total + two.moved_total
    assert sum(total.dead_lettered.values()) == sum(one.dead_lettered.values()) + sum(two.dead_lettered.values())
    assert total.left == one.left + two.left
    assert total.duplicates_possible == one.duplicates_possible + two.duplicates_possible
    assert total.failures == {**one.failures, **two.failures}
    assert one + DrainReport() == one == DrainReport() + one


def test_drain_is_empty_if_nothing_is_left_or_failed() -> None:
    assert DrainReport(moved={"flights": 3}, dead_lettered={"NoPath": 1}, duplicates_possible=1).empty
    assert not DrainReport(left=1).empty
    assert not DrainReport(failures={"flights": "no connection"}).empty


@pytest.mark.parametrize(
    "value", [SendResult(), DrainReport(), ProvisionReport()], ids=lambda value: type(value).__name__
)
def test_results_are_frozen(value: Any) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(value, fields(value)[0].name, 0)


def test_default_mappings_are_not_shared() -> None:
    assert DrainReport().moved is not DrainReport().moved
    assert ProvisionReport().failed is not ProvisionReport().failed


@pytest.mark.parametrize(
    ("progress", "per_second", "eta_seconds"),
    [
        (Progress(90, 10, 10, 50), 10, 5),
        (Progress(6, 1, 2, 7), 3.5, 2),
        (Progress(7, 1, 4, 5), 2, 2.5),
        (Progress(10, 0, 1), 10, None),
        (Progress(0, 0, 5, 7), 0, None),
        (Progress(0, 0, 0, 7), 0, None),
        (Progress(0, 0, 0, 0), 0, 0),
    ],
)
def test_progress_estimates_remaining_time(progress: Progress, per_second: float, eta_seconds: float | None) -> None:
    assert (progress.per_second, progress.eta_seconds) == (per_second, eta_seconds)
