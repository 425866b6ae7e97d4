"""Actions trigger runs of the example DAGs or change the syphon control, and are recorded."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from servicebus_pair.airflow_runtime.syphon_control import SyphonControl
from servicebus_pair.ui.api import actions_service
from tests.airflow.conftest import EXAMPLES, Pair, RunDag, run_task
from tests.airflow.support.queues import contents, divert
from tests.airflow.support.tasks import drain, provision
from tests.airflow.ui.support.page_client import PAIR_URL, wait_for_pair


@pytest.fixture
def example_dags(airflow_db: Path) -> None:  # noqa: ARG001  the tables must exist
    """The example DAGs that the page triggers, in Airflow's database and unpaused."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    from tests.airflow.support.dag_bag import DagBag, sync_bag_to_db

    bag = DagBag(str(EXAMPLES / "servicebus_pair_operations.py"))
    for dag in bag.dags.values():
        dag.relative_fileloc = "servicebus_pair_operations.py"
    sync_bag_to_db(bag, "dags-folder", None)
    with create_session() as session:
        session.execute(update(DagModel).values(is_paused=False, is_stale=False))


def post_action(page: TestClient, action: str, **body: Any) -> dict[str, Any]:
    response = page.post(f"{PAIR_URL}/actions/{action}", json={"reason": "planned test", **body})
    assert response.status_code == 202, response.text
    result: dict[str, Any] = response.json()
    return result


def read_run(result: dict[str, Any]) -> tuple[dict[str, Any], str, str]:
    """Return the configuration, user and note of the triggered run."""
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        run = session.scalars(
            select(DagRun).where(DagRun.run_id == result["run_id"], DagRun.dag_id == result["dag_id"])
        ).one()
        return dict(run.conf or {}), str(run.triggering_user_name), str(run.note)


@pytest.mark.usefixtures("unreachable_pair", "example_dags")
@pytest.mark.parametrize(
    ("action", "body", "dag_id", "conf"),
    [
        ("provision", {"plan_only": True}, "servicebus_pair_provision", {"plan_only": True}),
        ("drill", {"entities": ["flights"]}, "servicebus_pair_drill", {"entities": ["flights"], "messages": 10}),
        (
            "fail_over",
            {"entities": ["flights", "briefings"], "hold_minutes": 5},
            "servicebus_pair_by_hand",
            {"action": "fail_over", "entities": ["flights", "briefings"], "hold_minutes": 5, "reason": "planned test"},
        ),
        (
            "fail_back",
            {"entities": ["flights"]},
            "servicebus_pair_by_hand",
            {"action": "fail_back", "entities": ["flights"], "reason": "planned test"},
        ),
        ("start_syphon", {}, "servicebus_pair_recovery", {}),
        ("redrive", {"rate": 50}, "servicebus_pair_redrive", {"rate": 50}),
        ("plan_cleanup", {"what": "extra"}, "servicebus_pair_cleanup", {"what": "extra"}),
    ],
)
def test_action_triggers_its_dag_with_user_and_reason(
    page: TestClient, action: str, body: dict[str, Any], dag_id: str, conf: dict[str, Any]
):
    wait_for_pair(page, lambda pair: pair["actions"][0]["problem"] is None)

    result = post_action(page, action, **body)

    assert result["dag_id"] == dag_id
    assert read_run(result) == (conf, "admin", "planned test")
    seen = wait_for_pair(
        page, lambda pair: pair["action_log"] and pair["action_log"][0]["run"]["run_id"] == result["run_id"]
    )
    (record, *_) = seen["action_log"]
    assert (record["action"], record["user"], record["reason"]) == (action, "admin", "planned test")


@pytest.mark.usefixtures("unreachable_pair", "example_dags")
def test_paused_dag_is_not_triggered(page: TestClient):
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session
    from sqlalchemy import update

    with create_session() as session:
        session.execute(update(DagModel).where(DagModel.dag_id == "servicebus_pair_drill").values(is_paused=True))
    problem = "the DAG servicebus_pair_drill is paused: unpause it first"
    wait_for_pair(page, lambda pair: any(action["problem"] == problem for action in pair["actions"]))

    paused = page.post(f"{PAIR_URL}/actions/drill", json={"reason": "game day", "entities": ["flights"]})

    assert (paused.status_code, paused.json()) == (409, {"detail": problem})


@pytest.mark.usefixtures("unreachable_pair", "example_dags")
def test_syphon_control_keeps_user_and_reason_of_pause_and_rate(page: TestClient):
    wait_for_pair(page, lambda pair: pair["actions"][0]["problem"] is None)

    post_action(page, "throttle_syphon", rate=25)
    post_action(page, "pause_syphon")
    seen = wait_for_pair(page, lambda pair: pair["syphon"]["paused"])
    assert (seen["syphon"]["rate"], seen["syphon"]["by"], seen["syphon"]["reason"]) == (
        25,
        "admin",
        "planned test",
    )

    post_action(page, "resume_syphon", reason="they are up")
    seen = wait_for_pair(page, lambda pair: not pair["syphon"]["paused"])
    # Resuming does not change the reason of the rate.
    assert (seen["syphon"]["reason"], seen["syphon"]["rate_reason"]) == ("they are up", "planned test")
    post_action(page, "throttle_syphon")
    seen = wait_for_pair(page, lambda pair: not pair["syphon"]["paused"] and pair["syphon"]["rate"] is None)
    assert (seen["syphon"]["by"], seen["syphon"]["rate_by"]) == ("admin", "admin")
    assert [record["action"] for record in seen["action_log"][:4]] == [
        "throttle_syphon", "resume_syphon", "pause_syphon", "throttle_syphon",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("example_dags")
def test_running_drain_follows_pause_resume_and_throttle(pair: Pair, run_dag: RunDag, page: TestClient):
    from airflow.sdk import DAG

    run_task(run_dag, provision)
    asyncio.run(divert(pair, count=5))
    wait_for_pair(page, lambda pair: pair["backlog"]["messages"] == 5 and pair["actions"][0]["problem"] is None)
    post_action(page, "pause_syphon")
    post_action(page, "throttle_syphon", rate=0.2)
    with DAG("drains", schedule=None) as dag:
        drain(entities=["flights"], poll_interval=1, deferrable=True)
    resumed: list[int] = []

    def resume() -> None:
        wait_for_pair(page, lambda pair: pair["syphon"]["running"])
        resumed.append(len(contents(pair.primary["contoso"], "flights")))
        post_action(page, "resume_syphon")
        wait_for_pair(page, lambda pair: 0 < pair["backlog"]["messages"] < 5)
        post_action(page, "throttle_syphon")

    helper = threading.Thread(target=resume)
    helper.start()
    run = run_dag(dag)
    helper.join()

    assert run.state == "success"
    assert resumed == [0]
    assert len(contents(pair.primary["contoso"], "flights")) == 5
    seen = wait_for_pair(page, lambda pair: pair["backlog"]["messages"] == 0)
    assert [drain["moved"] for drain in seen["syphon"]["drains"]] == [5]


@pytest.mark.parametrize("stored", [None, "{", "[" * 100_000, '{"paused": true}', '{"x": "' + "y" * 2**21 + '"}'])
def test_a_stored_control_of_another_shape_does_not_prevent_a_new_one(stored: str | None):
    assert actions_service._parse_control(stored) == SyphonControl()
