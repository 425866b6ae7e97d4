"""Recoveries under a real scheduler, triggerer and API server, broken in the middle (issue 5).

After each of them: every message is on the primary, nothing is in the backlog, no link and no connection is open, no
process of a task is left.
"""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest

from servicebus_emulator import Fault, FaultKind
from tests.system.demo.airflow_service import TRIGGERER
from tests.system.demo.killing import find_victim
from tests.system.demo.rest import DagRun
from tests.system.whole.platform import Platform, platform
from tests.system.whole.repeating import rounds
from tests.system.whole.traces import Traces, metric, task_processes, until

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.timeout(420)]

NOTHING = Traces(connections=0, links=0, backlog=0, processes=())
COUNT = 200
ORPHAN_SECONDS = 10


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    """A whole Airflow with two namespaces; all tests of this file share it, one after the other."""
    root = tmp_path_factory.mktemp("whole") / "home"
    with platform(root, wanted=["whole_recovery", "whole_drain", "whole_at_once"]) as started:
        yield started


@pytest.fixture
def outage(whole: Platform) -> Iterator[str]:
    """The primary refuses all that is sent to ``flights``, until the fault of this id is cleared."""
    served = whole.stack.primary.served
    yield served.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    served.clear_faults()


def deferred(whole: Platform, dag_id: str, task_id: str) -> DagRun:
    """Trigger a run over REST, and wait until the task waits in the triggerer."""
    run = whole.api.trigger(dag_id, conf={})
    whole.wait_for_state(run, task_id, "deferred")
    return run


def end_outage(whole: Platform, fault: str) -> None:
    whole.stack.primary.served.clear_faults(fault)


def test_a_recovery_that_is_triggered_over_rest_waits_and_drains(whole: Platform, outage: str):
    ids = whole.divert("rest", count=COUNT)
    run = deferred(whole, "whole_recovery", "wait_for_primary")

    end_outage(whole, outage)

    assert whole.wait_for_end(run) == "success"
    assert set(whole.api.tries(run).values()) == {1}
    assert whole.copies(ids) == {"flights": [1] * COUNT}
    assert whole.wait_until_clean() == NOTHING


@pytest.mark.parametrize(
    ("dag_id", "task_id"), [("whole_recovery", "wait_for_primary"), ("whole_drain", "drain")], ids=["sensor", "syphon"]
)
def test_a_wait_goes_on_when_the_triggerer_is_killed_and_started_again(
    whole: Platform, outage: str, dag_id: str, task_id: str
):
    ids = whole.divert(f"triggerer-{task_id}", count=COUNT)
    run = deferred(whole, dag_id, task_id)

    orphans = whole.stack.processes.kill_alone(TRIGGERER)
    _, alive = psutil.wait_procs(orphans, timeout=20)
    whole.restart_triggerer()
    end_outage(whole, outage)

    assert alive == []
    assert whole.wait_for_end(run) == "success"
    assert set(whole.api.tries(run).values()) == {1}
    assert whole.copies(ids) == {"flights": [1] * COUNT}
    assert whole.wait_until_clean() == NOTHING


@pytest.mark.parametrize("victim", ["worker", "task"])
def test_a_drain_that_is_killed_goes_on_with_the_next_try(whole: Platform, victim: str):
    ids = whole.divert(f"killed-{victim}", count=5 * COUNT)
    before = metric(whole.stack.primary, "messages")
    run = whole.api.trigger("whole_drain", conf={})
    until(lambda: metric(whole.stack.primary, "messages") > before + 50, seconds=90, what="the drain has begun")

    task = find_victim("syphon", whole.api.instance(run, "drain"), task_processes(whole.stack))
    assert task is not None
    killed = task.parent() if victim == "worker" else task
    assert killed is not None
    killed.kill()
    _, alive = psutil.wait_procs([task], timeout=ORPHAN_SECONDS)

    assert alive == []
    assert whole.wait_for_end(run) == "success"
    assert whole.api.tries(run) == {("drain", -1): 2}
    copies = moved(whole, ids)
    assert min(copies) == 1
    assert whole.wait_until_clean(seconds=90) == NOTHING


def moved(whole: Platform, ids: dict[str, list[str]]) -> list[int]:
    """How many copies of each message the primary holds."""
    return whole.copies(ids)["flights"]


def test_a_deferred_syphon_that_is_marked_failed_leaves_nothing_and_does_its_work_when_it_is_cleared(
    whole: Platform, outage: str
):
    ids = whole.divert("cleared", count=COUNT)
    run = deferred(whole, "whole_drain", "drain")

    whole.api.mark_failed(run, "drain")
    assert whole.wait_for_end(run) == "failed"
    until(lambda: not whole.open_to_the_primary(), seconds=30, what="the trigger has closed its connection")
    assert moved(whole, ids) == [0] * COUNT
    whole.api.clear(run, "drain")
    whole.wait_for_state(run, "drain", "deferred")
    end_outage(whole, outage)

    assert whole.wait_for_end(run) == "success"
    assert moved(whole, ids) == [1] * COUNT
    assert whole.wait_until_clean() == NOTHING


def test_a_recovery_that_is_paused_while_it_waits_goes_on_when_it_may(whole: Platform, outage: str):
    ids = whole.divert("paused", count=COUNT)
    run = deferred(whole, "whole_recovery", "wait_for_primary")

    whole.api.pause("whole_recovery", paused=True)
    end_outage(whole, outage)
    until(lambda: not whole.open_to_the_primary(), seconds=60, what="the trigger has fired")
    assert moved(whole, ids) == [0] * COUNT
    whole.api.pause("whole_recovery", paused=False)

    assert whole.wait_for_end(run) == "success"
    assert set(whole.api.tries(run).values()) == {1}
    assert moved(whole, ids) == [1] * COUNT
    assert whole.wait_until_clean() == NOTHING


def test_tasks_that_all_resume_at_once_succeed_at_their_first_try_run_after_run(whole: Platform):
    done = list(rounds(whole, count=3))

    assert [each for each in done if not each.good] == []
    assert len(done) == 3
    assert whole.wait_until_clean() == NOTHING
