"""The example DAGs under a real scheduler, triggerer and API server: what starts them, and what people are told."""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from servicebus_emulator import Fault, FaultKind
from tests.system.demo.layout import PROJECT
from tests.system.demo.peek import queue_names
from tests.system.demo.rest import DagRun
from tests.system.whole.platform import Platform, platform
from tests.system.whole.telling import notices
from tests.system.whole.traces import Traces, metric, until

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(420)]

RECOVERY = "servicebus_pair_recovery"
CLEANUP = "servicebus_pair_cleanup"
COUNT = 100
NOTHING = Traces(connections=0, links=0, backlog=0, processes=())


@dataclass(frozen=True, slots=True)
class Deployment:
    """A whole Airflow that is configured by its environment, and what its notifier told."""

    whole: Platform
    told: Path

    def notice(self, run: DagRun, words: str) -> str | None:
        """What was told of a run in these words, if it was."""
        return next((line for line in notices(self.told) if f"run {run.run_id}," in line and words in line), None)

    def wait_for_notice(self, run: DagRun, words: str) -> str:
        until(lambda: self.notice(run, words) is not None, seconds=60, what=f"{words!r} is told", detail=self._all)
        return self.notice(run, words) or ""

    def wait_for_run(self, kind: str, *, besides: Collection[str] = ()) -> DagRun:
        """The first run that something of this kind has started."""

        def found() -> list[DagRun]:
            runs = self.whole.api.runs(RECOVERY)
            return [run for run in runs if run.run_id not in besides and run.run_id.startswith(kind)]

        until(lambda: bool(found()), seconds=90, what=f"a run {kind} begins")
        return found()[-1]

    def wait_for_waiting(self) -> DagRun:
        """The run that waits for the primary: that of the watcher, unless the clock was faster."""

        def waiting() -> list[DagRun]:
            active = [run for run in self.whole.api.runs(RECOVERY) if not run.finished]
            return [run for run in active if self.whole.api.tasks(run).get("wait_for_primary") == "deferred"]

        until(lambda: bool(waiting()), seconds=90, what="a recovery waits for the primary")
        return waiting()[0]

    def wait_for_quiet(self) -> None:
        """No recovery runs, and the clock, which strikes each minute, is about to start none.

        One that passed its sensor before the outage would wait in its drain.
        """

        def quiet() -> bool:
            return 2 <= time.time() % 60 < 50 and all(run.finished for run in self.whole.api.runs(RECOVERY))

        until(quiet, seconds=120, what="no recovery runs")

    def known(self) -> set[str]:
        """The ids of all runs so far."""
        return {run.run_id for run in self.whole.api.runs(RECOVERY)}

    def _all(self) -> list[str]:
        return notices(self.told)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The folder of the example DAGs as it is; all tests of this file share it, one after the other."""
    root = tmp_path_factory.mktemp("examples")
    told = root / "notices.txt"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(PROJECT), prepend=":")
        environment.setenv("SERVICEBUS_PAIR_RECOVERY_SCHEDULE", "* * * * *")
        environment.setenv("SERVICEBUS_PAIR_RECOVERY_DEADLINE_MINUTES", "0.2")
        environment.setenv("SERVICEBUS_PAIR_NOTIFIER", "tests.system.whole.telling.FileNotifier")
        arguments = {"path": str(told), "text": "{{ notice }}"}
        environment.setenv("SERVICEBUS_PAIR_NOTIFIER_ARGUMENTS", json.dumps(arguments))
        with platform(root / "home", dags=PROJECT / "dags", wanted=[RECOVERY, CLEANUP]) as whole:
            yield Deployment(whole, told)


@pytest.fixture
def outage(deployed: Deployment) -> Iterator[str]:
    """The primary refuses all that is sent to ``flights``, until the fault of this id is cleared."""
    served = deployed.whole.stack.primary.served
    yield served.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    served.clear_faults()


def test_the_clock_starts_a_recovery_that_finds_nothing_and_ends_early(deployed: Deployment):
    run = deployed.wait_for_run("scheduled__")

    assert deployed.whole.wait_for_end(run) == "success"
    tasks = deployed.whole.api.tasks(run)
    assert (tasks["backlog_queues"], tasks["drain"], tasks["reconcile"], tasks["report"]) == (
        *("success", "skipped", "skipped", "skipped"),
    )


def test_a_backlog_starts_a_recovery_that_is_late_brings_all_home_and_tells_so(deployed: Deployment, outage: str):
    whole = deployed.whole
    deployed.wait_for_quiet()
    before = deployed.known()
    ids = whole.divert("watched", count=COUNT)
    run = deployed.wait_for_waiting()
    late = deployed.wait_for_notice(run, "has not ended by")

    whole.stack.primary.served.clear_faults(outage)

    assert whole.wait_for_end(run) == "success"
    assert max(whole.api.tries(run).values()) == 1
    assert whole.copies(ids) == {"flights": [1] * COUNT}
    report = whole.api.result(run, "report")
    assert (report["moved"], report["dead_lettered"], report["lost"]) == ({"flights": COUNT}, {}, 0)
    assert Path(report["report"]).is_file()
    told = deployed.wait_for_notice(run, "brought the backlog home")
    assert json.dumps(report["moved"]) in told
    assert RECOVERY in late
    assert deployed.wait_for_run("asset_triggered__", besides=before).run_id not in before
    assert whole.wait_until_clean() == NOTHING


@pytest.mark.usefixtures("outage")
def test_a_recovery_that_fails_tells_so(deployed: Deployment):
    whole = deployed.whole
    deployed.wait_for_quiet()
    whole.divert("failing", count=1)
    run = deployed.wait_for_waiting()

    whole.api.mark_failed(run, "wait_for_primary")

    assert whole.wait_for_end(run) == "failed"
    assert "is still in the backlog" in deployed.wait_for_notice(run, "failed")


@pytest.mark.parametrize(("option", "approved"), [("Reject", False), ("Approve", True)], ids=["no", "yes"])
def test_a_cleanup_does_what_a_person_answers(deployed: Deployment, option: str, *, approved: bool):
    whole = deployed.whole
    until(lambda: not metric(whole.stack.secondary, "messages"), seconds=120, what="the backlog is empty")
    before = queues(whole)
    run = whole.api.trigger(CLEANUP, conf={"what": "all"})
    whole.wait_for_state(run, "approve", "awaiting_input")
    whole.wait_until_left(run, "approve")

    whole.api.answer(run, "approve", option)

    assert whole.wait_for_end(run) == "success"
    report = whole.api.result(run, "report")
    assert (report["approved"], report["approved_by"]) == (approved, "admin" if approved else None)
    assert len(before) == 10
    assert queues(whole) == ([] if approved else before)
    assert whole.api.tasks(run)["delete"] == ("success" if approved else "skipped")
    assert sorted(report["deleted"]) == (before if approved else [])
    assert report["not_deleted"] == ({} if approved else dict.fromkeys(before, "not approved"))


def queues(whole: Platform) -> list[str]:
    """The backlog queues."""
    return sorted(queue_names(whole.stack.secondary.administration))
