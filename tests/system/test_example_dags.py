"""The example DAGs under a real scheduler, triggerer and API server: what starts them, and what people are told."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import drill_of
from tests.system.demo.compare import Found
from tests.system.demo.layout import PROJECT
from tests.system.demo.namespaces import KEY
from tests.system.demo.peek import peek_everything, queue_names
from tests.system.demo.rest import DagRun
from tests.system.demo.stack import PING_SECONDS
from tests.system.whole.backlog import PLACES
from tests.system.whole.platform import Platform, platform
from tests.system.whole.telling import notices
from tests.system.whole.traces import Traces, metric, until

pytestmark = [pytest.mark.slow, pytest.mark.system, pytest.mark.spark, pytest.mark.timeout(900)]

RECOVERY = "servicebus_pair_recovery"
CLEANUP = "servicebus_pair_cleanup"
PROVISION = "servicebus_pair_provision"
DRILL = "servicebus_pair_drill"
BY_HAND = "servicebus_pair_by_hand"
SENDS = "servicebus_pair_sends"
REDRIVE = "servicebus_pair_redrive"
AT_SCALE = "servicebus_pair_at_scale"
COST = "servicebus_pair_cost"
# The pipeline is not among them: it runs whole in test_canary and in the demo.
ALL = (RECOVERY, CLEANUP, PROVISION, DRILL, BY_HAND, SENDS, REDRIVE, AT_SCALE, COST, "first_send", "first_recovery")
PAIR = "servicebus_pair.contoso_pair"
AT_WORK = {"queued", "running", "deferred"}
COUNT = 100
PING = "application/vnd.ms-servicebus-ping"
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
        # The game day that is past when the drill is switched on, and none on the day of the test.
        environment.setenv("SERVICEBUS_PAIR_DRILL_SCHEDULE", f"0 0 1 {(datetime.now(UTC).month + 5) % 12 + 1} *")
        environment.setenv("SERVICEBUS_PAIR_NOTIFIER", "tests.system.whole.telling.FileNotifier")
        arguments = {"path": str(told), "text": "{{ notice }}"}
        environment.setenv("SERVICEBUS_PAIR_NOTIFIER_ARGUMENTS", json.dumps(arguments))
        with platform(root / "home", dags=PROJECT / "dags", wanted=ALL) as whole:
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


@pytest.fixture(scope="module")
def calm(deployed: Deployment) -> Platform:
    """No recovery does anything by itself any more: what waits in the backlog is brought home by whom a test asks."""
    whole = deployed.whole
    whole.api.pause(RECOVERY, paused=True)

    def at_work() -> list[DagRun]:
        active = [run for run in whole.api.runs(RECOVERY) if not run.finished]
        return [run for run in active if AT_WORK.intersection(whole.api.tasks(run).values())]

    until(lambda: not at_work(), seconds=120, what="no recovery is at work")
    return whole


def test_provisioning_makes_the_queues_that_are_missing(calm: Platform):
    for queue in queues(calm):
        calm.stack.secondary.served.delete(queue)

    run = calm.api.trigger(PROVISION, conf={})

    assert calm.wait_for_end(run) == "success"
    assert len(queues(calm)) == 10
    assert calm.api.result(run, "provision")["created"] == 10


def test_a_drill_waits_until_it_is_switched_on_and_the_game_day_that_is_past_is_not_made_up_for(calm: Platform):
    run = calm.api.trigger(DRILL, conf={"entities": ["delays"], "messages": 3})
    others = [calm.api.trigger(COST, conf={"days": 1, "outage_minutes": 60}), calm.api.trigger("first_send", conf={})]
    assert [calm.wait_for_end(other) for other in others] == ["success", "success"]
    assert calm.api.run(run).state == "queued"

    calm.api.pause(DRILL, paused=False)

    until(lambda: [each.finished for each in calm.api.runs(DRILL)] == [True] * 2, seconds=120, what="both are done")
    [past] = [each for each in calm.api.runs(DRILL) if each.run_id != run.run_id]
    assert past.run_id.startswith("scheduled__")
    assert calm.api.tasks(past) == dict.fromkeys(("entities", "drill", "report"), "skipped")
    assert calm.api.result(run, "report")["passed"] == ["delays"]
    marks = Counter(drill_of(item.content.properties) for item in messages(calm, *PLACES.values()))
    assert {drill: count for drill, count in marks.items() if drill is not None} == {
        calm.api.result(run, "drill", map_index=0)["drill"]: 3
    }
    assert calm.api.result(others[0], "cost")["planned"]["operations"]["pings"] == 3600 / PING_SECONDS
    sent = [item.content.body for item in messages(calm, "briefings")]
    assert [sent.count(body) for body in (b"Runway 22L is closed.", b"Runway 22L is open.")] == [1, 1]


def test_dead_letters_are_redriven_once_their_entity_is_there(calm: Platform):
    ids = calm.divert("gone", count=COUNT, entities=["arrivals"])["arrivals"]
    drained = calm.api.trigger("first_recovery", conf={})
    assert calm.wait_for_end(drained) == "success"
    result = calm.api.result(drained, "drain")
    assert (result["moved"], result["dead_lettered"]) == ({}, {"EntityNotFound": COUNT})

    calm.stack.primary.served.create_queue("arrivals")
    run = calm.api.trigger(REDRIVE, conf={"rate": 500})

    assert calm.wait_for_end(run) == "success"
    assert calm.api.result(run, "redrive")["moved"] == {"arrivals": COUNT}
    assert sorted(item.key[1] for item in messages(calm, "arrivals")) == sorted(ids)


def test_what_was_sent_while_failed_over_by_hand_comes_home_in_spark(calm: Platform):
    before = len(messages(calm, "flights"))
    over = calm.api.trigger(BY_HAND, conf={"entities": ["flights"], "reason": "INC-4711"})
    assert calm.wait_for_end(over) == "success"
    [(asset, extra)] = calm.api.asset_events(over)
    del extra["since"]
    assert asset == "servicebus-pair://contoso_pair/failover"
    assert extra == {"entity": "flights", "reason": "INC-4711", "by": f"admin by {BY_HAND}"}
    assert calm.api.asset_state(PAIR)["health/flights"]["state"] == "failed_over"
    sends = calm.api.trigger(SENDS, conf={"queue": "flights"})
    assert calm.wait_for_end(sends) == "success"
    results = [calm.api.result(sends, task_id) for task_id in ("values", "from_file", "from_task", "crews")]
    assert [(each["primary"], each["diverted"]) for each in results] == [(0, 2), (0, 100), (0, 1), (0, 100)]
    assert len(messages(calm, "flights")) == before

    back = calm.api.trigger(BY_HAND, conf={"action": "fail_back", "entities": ["flights"], "reason": "INC-4711"})
    run = calm.api.trigger(AT_SCALE, conf={})

    assert calm.wait_for_end(back) == "success"
    assert calm.api.asset_state(PAIR)["health/flights"]["state"] == "healthy"
    assert calm.wait_for_end(run, seconds=500) == "success"  # four programs in Spark
    output = calm.stack.home.output / run.run_id.replace(":", "").replace("+", "_")
    report = json.loads((output / "drain.json").read_text())
    read = {job: json.loads((output / job / "summary.json").read_text()) for job in ("profile", "reconcile", "cost")}
    assert (read["profile"]["messages"], report["moved"], report["left"]) == (203, {"flights": 203}, 0)
    assert len(messages(calm, "flights")) == before + 203
    assert read["reconcile"]["totals"]["delivered"] >= 203
    told = calm.api.result(run, "report")
    assert (told["moved"], told["lost"], Path(told["report"]).is_file()) == ({"flights": 203}, 0, True)
    assert read["cost"]["operations"]["settlements"] >= 203
    assert KEY not in "".join(file.read_text(errors="replace") for file in output.rglob("*.*") if file.is_file())
    assert calm.wait_until_clean() == NOTHING


def messages(whole: Platform, *places: str) -> list[Found]:
    """What queues and subscriptions of the primary hold, pings aside."""
    found = peek_everything(whole.stack.primary.connection_string, places)
    return [item for item in found if item.content.content_type != PING]
