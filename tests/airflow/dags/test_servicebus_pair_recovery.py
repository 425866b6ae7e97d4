"""``servicebus_pair_recovery``: its schedule, its form, and a recovery from a real outage."""

from __future__ import annotations

import asyncio
import importlib
import re
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from servicebus_pair.airflow_runtime.airflow_version import AirflowFailException
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.protocol.backlog_queues import session_queue_paths
from servicebus_pair.dags import proof_dag, recovery_dag
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import (
    CONN_ID,
    EXAMPLES,
    Example,
    Pair,
    RunDag,
    define_connection,
    events,
    results,
    run_task,
    states,
)
from tests.airflow.support import tasks
from tests.airflow.support.queues import contents, divert

Recover: TypeAlias = Callable[..., Any]
RECOVERY = "servicebus_pair_recovery"


@pytest.fixture
def recover(run_dag: RunDag, tmp_path: Path) -> Recover:
    """Run a recovery with these fields of its form."""

    def run(**form: Any) -> Any:
        dag = recovery_dag(
            servicebus_pair_conn_id=CONN_ID, ledger=tmp_path / "ledger", poll_interval=timedelta(seconds=1)
        )
        return run_dag(dag, run_conf=form)

    return run


def test_failover_backlog_or_clock_start_one_run_at_a_time(example: Example):
    from airflow.sdk import AssetAny

    from servicebus_pair.airflow_runtime.airflow_version import AssetOrTimeSchedule, has
    from servicebus_pair.triggers.backlog import BacklogTrigger

    recovery = example(RECOVERY)
    schedule: Any = recovery.timetable
    assets = {asset.uri: asset for asset in schedule.asset_condition.objects}

    assert isinstance(schedule, AssetOrTimeSchedule)
    assert isinstance(schedule.asset_condition, AssetAny)
    assert set(assets) == {f"servicebus-pair://{CONN_ID}/failover", f"servicebus-pair://{CONN_ID}/backlog"}
    (watcher,) = assets[f"servicebus-pair://{CONN_ID}/backlog"].watchers
    assert isinstance(watcher.trigger, BacklogTrigger)
    clock: Any = schedule.timetable
    expression = "expression" if has("connection_forms") else "_expression"
    assert getattr(clock, expression) in {"@hourly", "0 * * * *"}  # Airflow 3.2 keeps it as it is written
    assert (recovery.max_active_runs, recovery.catchup) == (1, False)


def test_a_wrong_queue_in_the_form_is_not_tried_again(pair: Pair):  # noqa: ARG001 - the connection
    find: Any = recovery_dag(servicebus_pair_conn_id=CONN_ID).task_dict["backlog_queues"]

    with pytest.raises(AirflowFailException, match="no-backlog-queue"):
        find.python_callable(params={"queues": ["no-backlog-queue"]})


def test_each_non_empty_queue_is_drained_by_a_mapped_task_and_they_share_the_rate(
    pair: Pair, recover: Recover, caplog: pytest.LogCaptureFixture
):
    """SPEC section 6; dag.test runs one drain after the other."""
    sent = 0

    def fill_two() -> tuple[str, ...]:
        nonlocal sent
        while len(filled := ServiceBusPairHook(CONN_ID).filled_backlog_queues()) < 2:
            asyncio.run(divert(pair, count=5))  # to a queue chosen at random
            sent += 5
        return filled

    filled = fill_two()
    asyncio.run(divert(pair, "briefings", count=3))

    one = results(recover(queues=[filled[0]]))
    left = ServiceBusPairHook(CONN_ID).filled_backlog_queues()
    fill_two()
    caplog.clear()
    last = recover(rate=50)

    both = [one["report"], results(last)["report"]]
    assert (one["backlog_queues"], left, [each["queues"] for each in both]) == ([filled[0]], (filled[1],), [1, 2])
    assert sum(each["moved"].get("flights", 0) for each in both) == sent
    assert sum(each["moved"].get("briefings", 0) for each in both) == 3
    assert [each["dead_lettered"] for each in both] == [{}] * 2
    assert len(contents(pair.primary["contoso"], "flights")) == sent
    assert len(contents(pair.primary["contoso"], "briefings")) == 3
    limits = re.findall(r"this task moves at most (\S+) messages/s", caplog.text)
    assert limits == ["25"]  # then the last one has it all


def test_sessions_sent_during_a_failover_are_recovered_in_order(
    pair: Pair, recover: Recover, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch
):
    """SPEC section 6: through divert, drain and failback, with the health that tasks share through Airflow."""
    pair.settings |= {"ordering": "session", "health_refresh": 2}
    define_connection(monkeypatch, pair.extra())
    run_task(run_dag, tasks.provision)

    def send(numbers: range) -> Any:
        messages = [{"body": str(n), "message_id": f"{name}{n}", "session_id": name} for n in numbers for name in "ad"]
        return run_task(run_dag, lambda: tasks.send(messages=messages))["send"]

    assert send(range(2))["primary"] == 4
    run_task(run_dag, lambda: tasks.fail_over(entities="flights"))  # for an hour, however slow the machine is
    diverted = send(range(2, 5))
    report = results(recover())["report"]
    run_task(run_dag, lambda: tasks.fail_back(entities="flights"))
    back = send(range(5, 7))

    assert (diverted["diverted"], set(diverted["backlog_queues"])) == (6, set(session_queue_paths("contoso", 2)))
    assert report["moved"] == {"flights": 6}
    assert (back["primary"], back["diverted"]) == (4, 0)
    arrived = contents(pair.primary["contoso"], "flights")
    for name in "ad":
        assert [each.message_id for each in arrived if each.session_id == name] == [f"{name}{n}" for n in range(7)]


def test_a_dry_run_reports_waiting_messages_and_moves_none(pair: Pair, recover: Recover):
    asyncio.run(divert(pair, count=3))
    pair.primary.kill()

    run = recover(plan_only=True)

    assert run.state == "success"
    assert {task for task, state in states(run).items() if state == "success"} == {"mode", "plan"}
    plan = results(run)["plan"]
    assert (plan["waiting"]["flights"]["messages"], plan["undeliverable"]) == (3, {})
    assert (plan["unreadable"], plan["locked"]) == (0, 0)
    assert 0 <= plan["waiting"]["flights"]["newest_seconds"] <= plan["waiting"]["flights"]["oldest_seconds"] < 60
    assert len(ServiceBusPairHook(CONN_ID).filled_backlog_queues()) == 1


def test_a_recovery_starts_its_proof_and_tells_its_notifier_unless_the_backlog_is_empty(
    pair: Pair, run_dag: RunDag, tmp_path: Path
):
    from servicebus_pair.assets import drained_asset
    from tests.system.platform.file_notifier import FileNotifier, read_notices

    proof = proof_dag(servicebus_pair_conn_id=CONN_ID, entities=["flights"], ledger="ledger", output="output")
    file = tmp_path / "notices"
    asyncio.run(divert(pair, count=3))
    _, empty = (
        run_dag(
            recovery_dag(
                servicebus_pair_conn_id=CONN_ID,
                poll_interval=timedelta(seconds=1),
                notifier=FileNotifier(path=str(file), text="{{ notice }}"),
            )
        )
        for _ in range(2)
    )

    [extra] = events("drained")
    assert extra["moved"] == {"flights": 3}
    assert proof.timetable.asset_condition == drained_asset(CONN_ID)
    [notice] = read_notices(file)
    assert '"moved": {"flights": 3}' in notice
    assert empty.state == "success"
    assert states(empty) == {
        "mode": "success",
        "plan": "skipped",
        "wait_for_primary": "success",
        "backlog_queues": "success",
        "drain": "skipped",
        "report": "skipped",
    }


def test_a_recovery_knows_no_spark(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "airflow.providers.apache.spark", None)

    dag = recovery_dag(servicebus_pair_conn_id=CONN_ID)

    assert sorted(dag.task_ids) == ["backlog_queues", "drain", "mode", "plan", "report", "wait_for_primary"]
    assert dag.get_task("report").upstream_task_ids == {"drain"}


@pytest.mark.parametrize("factory", ["proof_dag", "at_scale_dag"])
def test_without_spark_its_dags_load_and_say_what_they_need(
    factory: str, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(sys.modules, "airflow.providers.apache.spark", None)
    make = getattr(importlib.import_module("servicebus_pair.dags"), factory)

    run = run_dag(
        make(
            servicebus_pair_conn_id=CONN_ID,
            entities=["flights"],
            ledger="ledger",
            output="output",
            spark_conn_id="no_spark",
        )
    )

    assert states(run) == {"requirements": "failed", "report": "upstream_failed"}
    said = capfd.readouterr().out
    assert "package airflow.providers.apache.spark is not installed: install the extra 'spark-provider'" in said
    assert "there is no connection 'no_spark': add it, such as by `airflow connections add no_spark" in said


@pytest.mark.usefixtures("airflow_db")
def test_three_pairs_are_three_lines(tmp_path: Path):
    from tests.airflow.support.dag_bag import DagBag

    code = (EXAMPLES / "three_pairs.py").read_text()
    lines = [line for line in code.splitlines() if line.startswith("recovery_dag(")]
    (tmp_path / "pairs.py").write_text(code)
    bag = DagBag(str(tmp_path))  # as Airflow parses it: a file without the words airflow and dag would be skipped

    assert len(lines) == 3
    assert set(bag.dags) == {"orders_pair_recovery", "billing_pair_recovery", "flights.west_recovery"}
    timetables: list[Any] = [dag.timetable for dag in bag.dags.values()]
    assets = [{each.uri for each in timetable.asset_condition.objects} for timetable in timetables]
    assert len(set().union(*assets)) == 6
    assert bag.dags["billing_pair_recovery"].params["rate"] == 500


def test_arguments_of_the_factory_reach_the_dag():
    deadlines: Any = importlib.import_module("airflow.sdk.definitions.deadline")  # public in Airflow 3.2
    alert = deadlines.DeadlineAlert(
        reference=deadlines.DeadlineReference.DAGRUN_QUEUED_AT,
        interval=timedelta(hours=1),
        callback=deadlines.AsyncCallback("tests.system.platform.file_notifier.FileNotifier"),
    )

    dag = recovery_dag(servicebus_pair_conn_id=CONN_ID, deadline=alert, tags=["orders"], default_args={"retries": 7})

    assert (dag.dag_id, dag.tags, dag.get_task("plan").retries) == (f"{CONN_ID}_recovery", {"orders"}, 7)
    assert dag.deadline == [alert]


@pytest.mark.usefixtures("pair")
def test_a_queue_outside_the_backlog_is_refused():
    with pytest.raises(ConfigurationError, match=r"queue 'orders' is not a backlog queue: they begin with 'contoso/"):
        ServiceBusPairHook(CONN_ID).filled_backlog_queues(["orders"])
