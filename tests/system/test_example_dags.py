"""The example DAGs with a real scheduler, triggerer and API server: their triggers, results and notifications."""

from __future__ import annotations

import json
import shutil
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from servicebus_pair.airflow_runtime.run_folder import run_folder
from servicebus_pair.core import drill_id
from tests.system.demo.airflow_api import DagRun
from tests.system.demo.comparison import Found
from tests.system.demo.layout import PROJECT
from tests.system.demo.namespaces import KEY
from tests.system.demo.peek import peek_everything, queue_names
from tests.system.demo.stack import PING_SECONDS
from tests.system.platform.backlog_messages import PING_CONTENT_TYPE, RECEIVING_ENTITIES
from tests.system.platform.file_notifier import read_notices
from tests.system.platform.leftovers import NO_LEFTOVERS, metric, wait_until
from tests.system.platform.platform import Platform, platform

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(900)]

RECOVERY = "servicebus_pair_recovery"
CLEANUP = "servicebus_pair_cleanup"
PROVISION = "servicebus_pair_provision"
DRILL = "servicebus_pair_drill"
BY_HAND = "servicebus_pair_by_hand"
SENDS = "servicebus_pair_sends"
REDRIVE = "servicebus_pair_redrive"
AT_SCALE = "servicebus_pair_at_scale"
PROOF = "servicebus_pair_proof"
COST = "servicebus_pair_cost"
# Without the pipeline, which test_no_secret_is_disclosed and the demo run.
DAG_IDS = (RECOVERY, CLEANUP, PROVISION, DRILL, BY_HAND, SENDS, REDRIVE, AT_SCALE, COST, "first_send", "first_recovery")
PAIR = "servicebus_pair.contoso_pair"
ACTIVE_STATES = {"queued", "running", "deferred"}
COUNT = 100


@dataclass(frozen=True, slots=True)
class Deployment:
    """A complete Airflow configured by its environment, and the file of its notifier."""

    system: Platform
    notices_file: Path

    def notice(self, run: DagRun, words: str) -> str | None:
        """Return the notice about a run that contains these words, if any."""
        return next(
            (line for line in read_notices(self.notices_file) if f"run {run.run_id}," in line and words in line), None
        )

    def wait_for_notice(self, run: DagRun, words: str) -> str:
        wait_until(
            lambda: self.notice(run, words) is not None,
            seconds=60,
            what=f"{words!r} is notified",
            detail=lambda: read_notices(self.notices_file),
        )
        return self.notice(run, words) or ""

    def wait_for_run(self, prefix: str, *, excluding: Collection[str] = ()) -> DagRun:
        """Return the first run whose id starts with this prefix."""

        def found() -> list[DagRun]:
            runs = self.system.api.runs(RECOVERY)
            return [run for run in runs if run.run_id not in excluding and run.run_id.startswith(prefix)]

        wait_until(lambda: bool(found()), seconds=90, what=f"a run {prefix} starts")
        return found()[-1]

    def wait_for_deferred_recovery(self) -> DagRun:
        """Return the recovery that waits for the primary: triggered by the backlog watcher, or by the schedule."""

        def waiting() -> list[DagRun]:
            active = [run for run in self.system.api.runs(RECOVERY) if not run.finished]
            return [run for run in active if self.system.api.tasks(run).get("wait_for_primary") == "deferred"]

        wait_until(lambda: bool(waiting()), seconds=90, what="a recovery waits for the primary")
        return waiting()[0]

    def wait_for_idle(self) -> None:
        """Wait until no recovery runs, and none is scheduled within seconds.

        A recovery that passed its sensor before the outage would wait in its drain.
        """

        def is_idle() -> bool:
            return 2 <= time.time() % 60 < 50 and all(run.finished for run in self.system.api.runs(RECOVERY))

        wait_until(is_idle, seconds=120, what="no recovery runs")

    def run_ids(self) -> set[str]:
        return {run.run_id for run in self.system.api.runs(RECOVERY)}


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """The example DAGs, shared by all tests of this module."""
    root = tmp_path_factory.mktemp("examples")
    notices_file = root / "notices.txt"
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("PYTHONPATH", str(PROJECT), prepend=":")
        environment.setenv("NOTICES", str(notices_file))
        dags = root / "dags"
        shutil.copytree(PROJECT / "tests" / "system" / "platform" / "dags_of_examples", dags)
        for name in ("first_send", "servicebus_pair_sends"):
            shutil.copy(PROJECT / "provider" / "servicebus_pair" / "example_dags" / f"{name}.py", dags)
        with platform(root / "home", dags=dags, dag_ids=DAG_IDS) as system:
            yield Deployment(system, notices_file)


@pytest.fixture
def outage(deployed: Deployment) -> Iterator[str]:
    with deployed.system.outage(entity="flights") as fault:
        yield fault


def test_scheduled_recovery_without_backlog_skips_its_tasks(deployed: Deployment):
    run = deployed.wait_for_run("scheduled__")

    assert deployed.system.wait_for_end(run) == "success"
    tasks = deployed.system.api.tasks(run)
    assert (tasks["backlog_queues"], tasks["drain"], tasks["report"]) == ("success", "skipped", "skipped")


def test_backlog_triggers_a_recovery_that_drains_and_notifies(deployed: Deployment, outage: str):
    system = deployed.system
    deployed.wait_for_idle()
    before = deployed.run_ids()
    ids = system.divert("watched", count=COUNT)
    run = deployed.wait_for_deferred_recovery()
    late = deployed.wait_for_notice(run, "has not ended by")

    system.stack.primary.served.clear_faults(outage)

    assert system.wait_for_end(run) == "success"
    assert max(system.api.tries(run).values()) == 1
    assert system.copies(ids) == {"flights": [1] * COUNT}
    report = system.api.result(run, "report")
    assert (report["moved"], report["dead_lettered"]) == ({"flights": COUNT}, {})
    wait_until(lambda: bool(system.api.runs(PROOF)), seconds=60, what="the recovery started its proof")
    proof = system.api.runs(PROOF)[-1]
    assert system.wait_for_end(proof) == "success"
    proven = system.api.result(proof, "report")
    assert (proven["lost"], proven["report"]) == (0, True)
    notice = deployed.wait_for_notice(run, "drained the backlog")
    assert json.dumps(report["moved"]) in notice
    assert RECOVERY in late
    assert deployed.wait_for_run("asset_triggered__", excluding=before).run_id not in before
    assert system.wait_for_no_leftovers() == NO_LEFTOVERS


@pytest.mark.usefixtures("outage")
def test_failed_recovery_notifies(deployed: Deployment):
    system = deployed.system
    deployed.wait_for_idle()
    system.divert("failing", count=1)
    run = deployed.wait_for_deferred_recovery()

    system.api.mark_failed(run, "wait_for_primary")

    assert system.wait_for_end(run) == "failed"
    assert "are still in the backlog" in deployed.wait_for_notice(run, "failed")


@pytest.mark.parametrize(("option", "approved"), [("Reject", False), ("Approve", True)], ids=["no", "yes"])
def test_cleanup_deletes_only_after_approval(deployed: Deployment, option: str, *, approved: bool):
    system = deployed.system
    wait_until(lambda: not metric(system.stack.secondary, "messages"), seconds=120, what="the backlog is empty")
    before = queues(system)
    run = system.api.trigger(CLEANUP, conf={"what": "all"})
    system.wait_for_state(run, "approve", "awaiting_input")
    system.wait_until_worker_freed(run, "approve")

    system.api.respond(run, "approve", option)

    assert system.wait_for_end(run) == "success"
    report = system.api.result(run, "report")
    assert (report["approved"], report["approved_by"]) == (approved, "admin" if approved else None)
    assert len(before) == 10
    assert queues(system) == ([] if approved else before)
    assert system.api.tasks(run)["delete"] == ("success" if approved else "skipped")
    assert sorted(report["deleted"]) == (before if approved else [])
    assert report["not_deleted"] == ({} if approved else dict.fromkeys(before, "not approved"))


def queues(system: Platform) -> list[str]:
    return sorted(queue_names(system.stack.secondary.administration))


@pytest.fixture(scope="module")
def without_recovery(deployed: Deployment) -> Platform:
    """The platform with the automatic recovery paused, so that only the test drains the backlog."""
    system = deployed.system
    system.api.pause(RECOVERY, paused=True)

    def active_recoveries() -> list[DagRun]:
        active = [run for run in system.api.runs(RECOVERY) if not run.finished]
        return [run for run in active if ACTIVE_STATES.intersection(system.api.tasks(run).values())]

    wait_until(lambda: not active_recoveries(), seconds=120, what="no recovery is active")
    return system


def test_provision_creates_missing_queues(without_recovery: Platform):
    for queue in queues(without_recovery):
        without_recovery.stack.secondary.served.delete(queue)

    run = without_recovery.api.trigger(PROVISION, conf={})

    assert without_recovery.wait_for_end(run) == "success"
    assert len(queues(without_recovery)) == 10
    assert without_recovery.api.result(run, "provision")["created"] == 10


def test_drill_waits_until_unpaused_and_skips_a_missed_schedule(without_recovery: Platform):
    run = without_recovery.api.trigger(DRILL, conf={"entities": ["delays"], "messages": 3})
    others = [
        without_recovery.api.trigger(COST, conf={"days": 1, "outage_minutes": 60}),
        without_recovery.api.trigger("first_send", conf={}),
    ]
    assert [without_recovery.wait_for_end(other) for other in others] == ["success", "success"]
    assert without_recovery.api.run(run).state == "queued"

    without_recovery.api.pause(DRILL, paused=False)

    wait_until(
        lambda: [each.finished for each in without_recovery.api.runs(DRILL)] == [True] * 2,
        seconds=120,
        what="both runs finish",
    )
    [past] = [each for each in without_recovery.api.runs(DRILL) if each.run_id != run.run_id]
    assert past.run_id.startswith("scheduled__")
    assert without_recovery.api.tasks(past) == {
        "entities_to_drill": "success",
        **dict.fromkeys(("drill", "report"), "skipped"),
    }
    assert without_recovery.api.result(run, "report")["passed"] == ["delays"]
    marks = Counter(
        drill_id(item.content.properties) for item in messages(without_recovery, *RECEIVING_ENTITIES.values())
    )
    assert {drill: count for drill, count in marks.items() if drill is not None} == {
        without_recovery.api.result(run, "drill", map_index=0)["drill"]: 3
    }
    assert without_recovery.api.result(others[0], "cost")["planned"]["operations"]["pings"] == 3600 / PING_SECONDS
    sent = [item.content.body for item in messages(without_recovery, "briefings")]
    assert [sent.count(body) for body in (b"Runway 22L is closed.", b"Runway 22L is open.")] == [1, 1]


def test_redrive_delivers_dead_letters_after_their_entity_was_created(without_recovery: Platform):
    ids = without_recovery.divert("gone", count=COUNT, entities=["arrivals"])["arrivals"]
    drained = without_recovery.api.trigger("first_recovery", conf={})
    assert without_recovery.wait_for_end(drained) == "success"
    result = without_recovery.api.result(drained, "drain")
    assert (result["moved"], result["dead_lettered"]) == ({}, {"EntityNotFound": COUNT})

    without_recovery.stack.primary.served.create_queue("arrivals")
    run = without_recovery.api.trigger(REDRIVE, conf={"rate": 500})

    assert without_recovery.wait_for_end(run) == "success"
    assert without_recovery.api.result(run, "redrive")["moved"] == {"arrivals": COUNT}
    assert sorted(item.key[1] for item in messages(without_recovery, "arrivals")) == sorted(ids)


def test_manual_failover_is_drained_by_spark(without_recovery: Platform):
    before = len(messages(without_recovery, "flights"))
    over = without_recovery.api.trigger(BY_HAND, conf={"entities": ["flights"], "reason": "INC-4711"})
    assert without_recovery.wait_for_end(over) == "success"
    [(asset, extra)] = without_recovery.api.asset_events(over)
    del extra["since"]
    assert asset == "servicebus-pair://contoso_pair/failover"
    assert extra == {"entity": "flights", "reason": "INC-4711", "by": f"admin by {BY_HAND}"}
    assert without_recovery.api.asset_state(PAIR)["health/flights"]["state"] == "failed_over"
    sends = without_recovery.api.trigger(SENDS, conf={"queue": "flights"})
    assert without_recovery.wait_for_end(sends) == "success"
    results = [without_recovery.api.result(sends, task_id) for task_id in ("values", "from_file", "from_task", "crews")]
    assert [(each["primary"], each["diverted"]) for each in results] == [(0, 2), (0, 100), (0, 1), (0, 100)]
    moved = 203 + without_recovery.api.result(sends, "gates")
    assert len(messages(without_recovery, "flights")) == before

    back = without_recovery.api.trigger(
        BY_HAND, conf={"action": "fail_back", "entities": ["flights"], "reason": "INC-4711"}
    )
    run = without_recovery.api.trigger(AT_SCALE, conf={})

    assert without_recovery.wait_for_end(back) == "success"
    assert without_recovery.api.asset_state(PAIR)["health/flights"]["state"] == "healthy"
    assert without_recovery.wait_for_end(run, seconds=500) == "success"  # four Spark applications
    output = without_recovery.stack.home.output / run.dag_id / run_folder(run.run_id)
    report = json.loads((output / "drain.json").read_text())
    read = {job: json.loads((output / job / "summary.json").read_text()) for job in ("profile", "reconcile", "cost")}
    assert (read["profile"]["messages"], report["moved"], report["left"]) == (moved, {"flights": moved}, 0)
    assert len(messages(without_recovery, "flights")) == before + moved
    assert read["reconcile"]["totals"]["delivered"] >= moved
    reported = without_recovery.api.result(run, "report")
    assert (reported["moved"], reported["lost"], reported["report"]) == ({"flights": moved}, 0, True)
    assert read["cost"]["operations"]["settlements"] >= moved
    assert KEY not in "".join(file.read_text(errors="replace") for file in output.rglob("*.*") if file.is_file())
    assert without_recovery.wait_for_no_leftovers() == NO_LEFTOVERS


def messages(system: Platform, *entities: str) -> list[Found]:
    """Return the messages of queues and subscriptions on the primary, without pings."""
    found = peek_everything(system.stack.primary.connection_string, entities)
    return [item for item in found if item.content.content_type != PING_CONTENT_TYPE]
