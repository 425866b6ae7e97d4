"""How tasks share the queues of a drain, and what their reports add up to (SPEC section 6)."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

import pytest

from servicebus_pair.core import DrainReport, Operations
from servicebus_pair.spark.base.credential_reference import PairReference
from servicebus_pair.spark.transfer.drain_task import DrainPlan, DrainTaskReport
from servicebus_pair.spark.transfer.draining import _distribute, _merge_reports

QUEUES = ("q0", "q1", "q2")


@pytest.mark.parametrize(
    ("tasks", "expected"),
    [
        (1, [QUEUES]),
        (2, [("q0", "q2"), ("q1",)]),
        (3, [("q0",), ("q1",), ("q2",)]),
        (5, [("q0",), ("q1",), ("q2",), ("q0",), ("q1",)]),
    ],
)
def test_a_task_has_several_queues_or_several_tasks_have_one(tasks: int, expected: list[tuple[str, ...]]) -> None:
    groups = _distribute(QUEUES, tasks)
    assert list(groups) == expected
    assert set(chain(*groups)) == set(QUEUES)


def report(task: int, *, ended: float, moved: int, left: int = 0, attempt: int = 0, **failures: str) -> DrainTaskReport:
    found = DrainReport(moved={"flights": moved}, left=left, failures=failures, duplicates_possible=1)
    return DrainTaskReport(task, attempt, found, Operations(sends=moved), ended)


def test_what_is_left_in_a_queue_is_known_to_the_last_task_that_drained_it() -> None:
    plan = DrainPlan(PairReference.parse("env:PAIR"), _distribute(QUEUES[:2], 4), "ledger", "run")
    reports = [
        report(0, ended=9, moved=1, left=4, flights="busy"),
        report(1, ended=8, moved=2, left=7, delays="closed"),
        report(2, ended=7, moved=3, left=50, gone="refused"),
        report(3, ended=10, moved=4),
    ]
    result = _merge_reports(plan, reports, {}, batch_size=100, ordered=False, started_at=0, ended_at=10)
    assert (result.moved, result.left, result.failures) == ({"flights": 10}, 4, {"flights": "busy"})
    assert (result.tasks, result.duplicates_possible, result.operations.sends) == (4, 4, 10)


@pytest.mark.parametrize(("ordered", "windows"), [(False, 2 + 1), (True, 2 * (2 + 1))])
def test_section_6_a_lost_attempt_leaves_a_window_of_each_queue_or_of_each_session(ordered: bool, windows: int) -> None:
    plan = DrainPlan(PairReference.parse("env:PAIR"), _distribute(QUEUES, 2), "ledger", "run")
    reports = [report(0, ended=9, moved=1, attempt=1), report(1, ended=8, moved=2, attempt=1)]
    reports.append(replace(reports[0], report=DrainReport(moved={"delays": 1}), attempt=0))
    result = _merge_reports(plan, reports, {}, batch_size=100, ordered=ordered, started_at=0, ended_at=10)
    assert (result.lost_attempts, result.duplicates_possible) == (2, 2 + 100 * windows)
