"""Recoveries with a real scheduler, triggerer and API server, interrupted by failures.

After each, every message is on the primary, the backlog is empty, no link or connection is open, and no task process is
left.
"""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from tests.system.demo.airflow_api import DagRun
from tests.system.demo.airflow_process import TRIGGERER
from tests.system.demo.kill_targets import find_process_to_kill
from tests.system.platform.backlog_messages import RECEIVING_ENTITIES
from tests.system.platform.leftovers import NO_LEFTOVERS, metric, task_processes, wait_until
from tests.system.platform.platform import Platform, platform

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.timeout(420)]

COUNT = 200
ORPHAN_EXIT_SECONDS = 10


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A complete Airflow with two namespaces, shared by all tests of this module."""
    root = tmp_path_factory.mktemp("system") / "home"
    with platform(root, dag_ids=["recovery_with_sensor", "recovery_slow", "recovery_simultaneous"]) as started:
        yield started


@pytest.fixture
def outage(system: Platform) -> Iterator[str]:
    with system.outage(entity="flights") as fault:
        yield fault


def trigger_deferred(system: Platform, dag_id: str, task_id: str) -> DagRun:
    run = system.api.trigger(dag_id, conf={})
    system.wait_for_state(run, task_id, "deferred")
    return run


def end_outage(system: Platform, fault: str) -> None:
    system.stack.primary.served.clear_faults(fault)


@pytest.mark.parametrize(
    ("dag_id", "task_id"),
    [("recovery_with_sensor", "wait_for_primary"), ("recovery_slow", "drain")],
    ids=["sensor", "syphon"],
)
def test_deferred_task_survives_a_restart_of_the_triggerer(system: Platform, outage: str, dag_id: str, task_id: str):
    ids = system.divert(f"triggerer-{task_id}", count=COUNT)
    run = trigger_deferred(system, dag_id, task_id)

    orphans = system.stack.processes.kill_leader_only(TRIGGERER)
    _, alive = psutil.wait_procs(orphans, timeout=20)
    system.restart_triggerer()
    end_outage(system, outage)

    assert alive == []
    assert system.wait_for_end(run) == "success"
    assert set(system.api.tries(run).values()) == {1}
    assert system.copies(ids) == {"flights": [1] * COUNT}
    assert system.wait_for_no_leftovers() == NO_LEFTOVERS


@pytest.mark.parametrize("killed_process", ["worker", "task"])
def test_killed_drain_is_completed_by_its_retry(system: Platform, killed_process: str):
    ids = system.divert(f"killed-{killed_process}", count=5 * COUNT)
    before = metric(system.stack.primary, "messages")
    run = system.api.trigger("recovery_slow", conf={})
    wait_until(lambda: metric(system.stack.primary, "messages") > before + 50, seconds=90, what="the drain has started")

    task = find_process_to_kill("syphon", system.api.instance(run, "drain"), task_processes(system.stack))
    assert task is not None
    killed = task.parent() if killed_process == "worker" else task
    assert killed is not None
    killed.kill()
    _, alive = psutil.wait_procs([task], timeout=ORPHAN_EXIT_SECONDS)

    assert alive == []
    assert system.wait_for_end(run) == "success"
    assert system.api.tries(run) == {("drain", -1): 2}
    assert min(system.copies(ids)["flights"]) == 1
    assert system.wait_for_no_leftovers(seconds=90) == NO_LEFTOVERS


def test_deferred_drain_marked_failed_leaves_nothing_behind_and_can_be_cleared(system: Platform, outage: str):
    ids = system.divert("cleared", count=COUNT)
    run = trigger_deferred(system, "recovery_slow", "drain")

    system.api.mark_failed(run, "drain")
    assert system.wait_for_end(run) == "failed"
    wait_until(lambda: not system.primary_connections(), seconds=30, what="the trigger has closed its connection")
    assert system.copies(ids) == {"flights": [0] * COUNT}
    system.api.clear(run, "drain")
    system.wait_for_state(run, "drain", "deferred")
    end_outage(system, outage)

    assert system.wait_for_end(run) == "success"
    assert system.copies(ids) == {"flights": [1] * COUNT}
    assert system.wait_for_no_leftovers() == NO_LEFTOVERS


def test_paused_dag_continues_its_recovery_when_unpaused(system: Platform, outage: str):
    ids = system.divert("paused", count=COUNT)
    run = trigger_deferred(system, "recovery_with_sensor", "wait_for_primary")

    system.api.pause("recovery_with_sensor", paused=True)
    end_outage(system, outage)
    wait_until(lambda: not system.primary_connections(), seconds=60, what="the trigger has fired")
    assert system.copies(ids) == {"flights": [0] * COUNT}
    system.api.pause("recovery_with_sensor", paused=False)

    assert system.wait_for_end(run) == "success"
    assert set(system.api.tries(run).values()) == {1}
    assert system.copies(ids) == {"flights": [1] * COUNT}
    assert system.wait_for_no_leftovers() == NO_LEFTOVERS


def test_tasks_that_resume_simultaneously_need_no_retry(system: Platform):
    for number in range(3):
        ids = system.divert(f"simultaneous-{number}", count=10, entities=tuple(RECEIVING_ENTITIES))
        with system.outage():
            run = trigger_deferred(system, "recovery_simultaneous", "wait_for_primary")

        assert system.wait_for_end(run) == "success"
        assert set(system.api.tries(run).values()) == {1}
        assert system.copies(ids) == {entity: [1] * 10 for entity in ids}
    assert system.wait_for_no_leftovers() == NO_LEFTOVERS
