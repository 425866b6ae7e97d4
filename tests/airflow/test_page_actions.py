"""What is done on the page: runs of the example DAGs, and values that drains obey, on the record."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from servicebus_pair.hooks.steering import SyphonControl
from tests.airflow.conftest import CONN_ID, PROJECT, Pair, RunDag, run_task
from tests.airflow.pages import PAIR, shown
from tests.airflow.queues import contents, divert
from tests.airflow.test_sending import provision

if TYPE_CHECKING:
    from pathlib import Path

    from fastapi.testclient import TestClient


@pytest.fixture
def examples(airflow_db: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ARG001  the tables must exist
    """The example DAGs that the page starts, as Airflow's database knows them; switched on."""
    from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    monkeypatch.syspath_prepend(str(PROJECT / "dags"))
    for name in ("by_hand", "provision", "drill", "cleanup", "redrive", "recovery"):
        bag = DagBag(str(PROJECT / "dags" / f"servicebus_pair_{name}.py"))
        for dag in bag.dags.values():
            dag.relative_fileloc = f"servicebus_pair_{name}.py"
        sync_bag_to_db(bag, "dags-folder", None)
    with create_session() as session:
        session.execute(update(DagModel).values(is_paused=False, is_stale=False))


def act(page: TestClient, action: str, **body: Any) -> dict[str, Any]:
    answer = page.post(f"{PAIR}/actions/{action}", json={"reason": "because of the test", **body})
    assert answer.status_code == 202, answer.text
    done: dict[str, Any] = answer.json()
    return done


def started(done: dict[str, Any]) -> tuple[dict[str, Any], str, str]:
    """What a run was started with, by whom, and why."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        run = session.scalars(
            select(DagRun).where(DagRun.run_id == done["run_id"], DagRun.dag_id == done["dag_id"])
        ).one()
        return run.conf, str(run.triggering_user_name), str(run.note)


@pytest.mark.usefixtures("nowhere", "examples")
@pytest.mark.parametrize(
    ("action", "body", "dag_id", "conf"),
    [
        ("provision", {"plan_only": True}, "servicebus_pair_provision", {"plan_only": True}),
        ("drill", {"entities": ["flights"]}, "servicebus_pair_drill", {"entities": ["flights"], "messages": 10}),
        (
            "fail_over",
            {"entities": ["flights", "briefings"], "hold_minutes": 5},
            "servicebus_pair_by_hand",
            {
                "action": "fail_over",
                "entities": ["flights", "briefings"],
                "hold_minutes": 5,
                "reason": "because of the test",
            },
        ),
        (
            "fail_back",
            {"entities": ["flights"]},
            "servicebus_pair_by_hand",
            {"action": "fail_back", "entities": ["flights"], "reason": "because of the test"},
        ),
        ("start_syphon", {}, "servicebus_pair_recovery", {}),
        ("redrive", {"rate": 50}, "servicebus_pair_redrive", {"rate": 50}),
        ("plan_cleanup", {"what": "extra"}, "servicebus_pair_cleanup", {"what": "extra"}),
    ],
)
def test_an_action_starts_a_run_of_its_dag_with_user_and_reason(
    page: TestClient,
    action: str,
    body: dict[str, Any],
    dag_id: str,
    conf: dict[str, Any],
):
    shown(page, lambda pair: pair["actions"][0]["problem"] is None)

    done = act(page, action, **body)

    assert done["dag_id"] == dag_id
    assert started(done) == (conf, "admin", "because of the test")
    seen = shown(page, lambda pair: pair["deeds"] and pair["deeds"][0]["run"]["run_id"] == done["run_id"])
    (deed, *_) = seen["deeds"]
    assert (deed["action"], deed["user"], deed["reason"]) == (action, "admin", "because of the test")


@pytest.mark.usefixtures("nowhere", "examples")
def test_a_dag_that_is_paused_or_takes_no_such_setting_is_not_started(page: TestClient):
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == "servicebus_pair_drill").values(is_paused=True))
    problem = "the DAG servicebus_pair_drill is paused: switch it on first"
    shown(page, lambda pair: any(action["problem"] == problem for action in pair["actions"]))

    paused = page.post(f"{PAIR}/actions/drill", json={"reason": "game day", "entities": ["flights"]})
    foreign = page.post(
        f"{PAIR}/actions/fail_over", json={"reason": "x", "entities": ["f" * 260], "hold_minutes": 10_080}
    )

    assert (paused.status_code, paused.json()) == (409, {"detail": problem})
    assert foreign.status_code == 202


@pytest.mark.usefixtures("nowhere", "examples")
def test_pause_throttle_and_resume_are_one_value_that_says_who_and_why(page: TestClient):
    shown(page, lambda pair: pair["actions"][0]["problem"] is None)

    act(page, "throttle_syphon", rate=25)
    act(page, "pause_syphon")
    seen = shown(page, lambda pair: pair["syphon"]["paused"])
    assert (seen["syphon"]["rate"], seen["syphon"]["by"], seen["syphon"]["reason"]) == (
        25,
        "admin",
        "because of the test",
    )

    act(page, "resume_syphon", reason="they are up")
    seen = shown(page, lambda pair: not pair["syphon"]["paused"])
    # Each with the reason of its own: that of going on is none for being slow.
    assert (seen["syphon"]["reason"], seen["syphon"]["rate_reason"]) == ("they are up", "because of the test")
    act(page, "throttle_syphon")
    seen = shown(page, lambda pair: not pair["syphon"]["paused"] and pair["syphon"]["rate"] is None)
    assert (seen["syphon"]["by"], seen["syphon"]["rate_by"]) == ("admin", "admin")
    assert [deed["action"] for deed in seen["deeds"][:4]] == [
        "throttle_syphon", "resume_syphon", "pause_syphon", "throttle_syphon",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("examples")
def test_a_drain_is_paused_resumed_slowly_and_let_go_while_it_runs(pair: Pair, run_dag: RunDag, page: TestClient):
    from airflow.sdk import DAG

    from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator

    run_task(run_dag, provision)
    asyncio.run(divert(pair, count=5))
    shown(page, lambda pair: pair["backlog"]["messages"] == 5 and pair["actions"][0]["problem"] is None)
    act(page, "pause_syphon")
    act(page, "throttle_syphon", rate=0.2)
    with DAG("drains", schedule=None) as dag:
        ServiceBusPairSyphonOperator(
            task_id="drain", conn_id=CONN_ID, entities=["flights"], poll_interval=1, deferrable=True
        )
    resumed: list[int] = []

    def resume() -> None:
        shown(page, lambda pair: pair["syphon"]["running"])
        resumed.append(len(contents(pair.primary["contoso"], "flights")))
        act(page, "resume_syphon")
        shown(page, lambda pair: 0 < pair["backlog"]["messages"] < 5)
        act(page, "throttle_syphon")

    helper = threading.Thread(target=resume)
    helper.start()
    run = run_dag(dag)
    helper.join()

    assert run.state == "success"
    assert resumed == [0]
    assert len(contents(pair.primary["contoso"], "flights")) == 5
    seen = shown(page, lambda pair: pair["backlog"]["messages"] == 0)
    assert [drain["moved"] for drain in seen["syphon"]["drains"]] == [5]


def test_a_control_is_read_as_it_was_written():
    control = SyphonControl(paused=True, rate=12.5, by="anna", reason="<b>", at=5.0)

    assert SyphonControl.from_json(json.loads(json.dumps(control.to_json()))) == control
    assert SyphonControl.from_json(SyphonControl().to_json()) == SyphonControl()
    assert (control.slowed(None), control.slowed(5), control.slowed(50)) == (12.5, 5, 12.5)
    assert (control.slowed(None, among=5), control.slowed(2, among=5), SyphonControl().slowed(None, among=5)) == (
        *(2.5, 2),
        None,
    )
