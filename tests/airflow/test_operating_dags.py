"""The example DAGs that look after a pair run, and say what they are and what they may be asked."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest
from airflow.sdk.exceptions import AirflowSkipException

from servicebus_pair.core.health import State
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import AIRFLOW_HOME, CONN_ID, PROJECT, Pair, RunDag, events, results, shared_health, states
from tests.airflow.queues import contents, divert, queue_names

Example: TypeAlias = Callable[[str], Any]
RunExample: TypeAlias = Callable[..., Any]
QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]
DAGS = ("provision", "recovery", "cleanup", "drill", "cost", "by_hand", "sends")


@pytest.fixture
def run_example(run_dag: RunDag, example: Example) -> RunExample:
    """Run an example as the form asks for it."""

    def run(name: str, **form: Any) -> Any:
        # Loaded anew: dag.test leaves the answers of a form in the DAG that it runs.
        return run_dag(example(f"servicebus_pair_{name}"), run_conf=form)

    return run


@pytest.fixture(scope="module")
def person(airflow_db: Path) -> Iterator[Callable[[str], None]]:  # noqa: ARG001  the tables must exist
    """Somebody who answers the next question of a cleanup, over Airflow's REST API."""
    from airflow.api_fastapi.app import create_app
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from fastapi.testclient import TestClient
    from sqlalchemy import select

    asked = select(TaskInstance.run_id).join(HITLDetail, HITLDetail.ti_id == TaskInstance.id)
    waiting = asked.where(TaskInstance.task_id == "approve", TaskInstance.state == "awaiting_input")
    (AIRFLOW_HOME / "passwords.json").write_text(json.dumps({"admin": "admin", "vic": "vic"}))
    with TestClient(create_app(), raise_server_exceptions=False) as client, ThreadPoolExecutor() as thread:

        def answer(option: str) -> None:
            run_id = None
            while run_id is None and not over.wait(0.2):
                with create_session() as session:
                    run_id = session.scalars(waiting).first()
            task = f"/api/v2/dags/servicebus_pair_cleanup/dagRuns/{run_id}/taskInstances/approve/-1"
            token = client.post("/auth/token", json={"username": "admin", "password": "admin"}).json()["access_token"]
            given = {"chosen_options": [option], "params_input": {}}
            told = client.patch(f"{task}/hitlDetails", json=given, headers={"Authorization": f"Bearer {token}"})
            assert told.status_code == HTTPStatus.OK, told.text

        over, answers = threading.Event(), []
        yield lambda option: answers.append(thread.submit(answer, option))
        over.set()
        for each in answers:
            each.result()


@pytest.mark.parametrize("name", DAGS)
def test_each_says_what_it_is_and_every_question_of_its_form_has_a_title_and_a_type(example: Example, name: str):
    dag = example(f"servicebus_pair_{name}")

    assert dag.doc_md
    assert set(dag.tags) == {"servicebus_pair", "example"}
    assert f"servicebus_pair_{name}" == dag.dag_id
    schemas = [dag.params.get_param(each).schema for each in dag.params]
    assert schemas
    assert all(schema.get("title") and (schema.get("type") or schema.get("enum")) for schema in schemas)


@pytest.mark.parametrize("name", DAGS)
def test_each_takes_its_connection_from_the_environment(example: Example, name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SERVICEBUS_PAIR_CONN_ID", "other_pair")

    dag = example(f"servicebus_pair_{name}")

    assert {task.conn_id for task in dag.tasks if hasattr(task, "conn_id")} <= {"other_pair"}
    assert any("other_pair" in str(vars(task)) or "other_pair" in str(task.partial_kwargs) for task in _ours(dag))


def test_provisioning_again_changes_nothing(pair: Pair, run_example: RunExample):

    planned = results(run_example("provision", plan_only=True))["provision"]
    first = results(run_example("provision"))["provision"]
    second = results(run_example("provision", on_drift="fail"))["provision"]

    assert [run["created"] for run in (planned, first, second)] == [0, 2, 0]
    assert queue_names(pair.secondary["contoso-dr"]) == QUEUES


@pytest.mark.usefixtures("pair")
def test_a_cleanup_with_nothing_to_delete_asks_nobody(run_example: RunExample):
    run_example("provision")

    run = run_example("cleanup")

    done, not_done = ("plan", "planned_queues"), ("approve", "delete", "report")
    assert states(run) == dict.fromkeys(done, "success") | dict.fromkeys(not_done, "skipped")


def test_a_cleanup_deletes_what_was_planned_once_a_person_approved(
    pair: Pair, run_example: RunExample, person: Callable[[str], None]
):
    asyncio.run(divert(pair, count=2))  # one of the two queues holds messages
    (held,) = ServiceBusPairHook(CONN_ID).filled_backlog_queues()
    (empty,) = set(QUEUES) - {held}

    person("Approve")
    run = run_example("cleanup", what="all")

    assert set(states(run).values()) == {"success"}
    assert results(run)["report"] == {
        "approved": True,
        "approved_by": "admin",
        "deleted": [empty],
        "not_deleted": {held: "it holds 2 messages"},
    }
    assert queue_names(pair.secondary["contoso-dr"]) == [held]


def test_a_cleanup_that_a_person_rejects_deletes_nothing_and_says_what_it_left(
    pair: Pair, run_example: RunExample, person: Callable[[str], None]
):
    run_example("provision")

    person("Reject")
    run = run_example("cleanup", what="all", force=True)

    assert run.state == "success"
    assert (states(run)["approve"], states(run)["delete"]) == ("success", "skipped")
    assert results(run)["report"] == {
        "approved": False,
        "approved_by": None,
        "deleted": [],
        "not_deleted": dict.fromkeys(QUEUES, "not approved"),
    }
    assert queue_names(pair.secondary["contoso-dr"]) == QUEUES


@pytest.mark.parametrize(
    ("dag", "setting", "allowed"),
    [
        ("recovery", "RECOVERY_DEADLINE_MINUTES=abc", "from 0 to 525600; not set, it is 60"),
        ("recovery", "RECOVERY_WAIT_HOURS=0", "from 0.01 to 8760; not set, it is 24"),
        ("recovery", "POLL_SECONDS=0.5", "from 1 to 3600; not set, it is 10"),
        ("cleanup", "APPROVAL_HOURS=nan", "from 0.01 to 8760; not set, it is 24"),
    ],
)
@pytest.mark.usefixtures("example")
def test_a_number_of_the_environment_that_is_none_is_named_when_the_dag_is_parsed(
    monkeypatch: pytest.MonkeyPatch, dag: str, setting: str, allowed: str
):
    from airflow.dag_processing.dagbag import DagBag

    variable, value = f"SERVICEBUS_PAIR_{setting}".split("=")
    monkeypatch.setenv(variable, value)

    [told] = DagBag(str(PROJECT / "dags" / f"servicebus_pair_{dag}.py")).import_errors.values()

    assert told.rstrip().endswith(
        f"ConfigurationError: environment variable {variable} is {value!r}: it must be a number {allowed}"
    )


def test_no_answer_in_time_to_the_question_of_the_cleanup_is_a_no(example: Example, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SERVICEBUS_PAIR_APPROVAL_HOURS", "2")

    approve = example("servicebus_pair_cleanup").get_task("approve")

    assert (approve.defaults, approve.response_timeout) == (["Reject"], timedelta(hours=2))
    assert sorted(approve.downstream_task_ids) == ["delete"]


def test_the_question_of_the_cleanup_names_the_queues_and_what_is_lost(example: Example):
    import jinja2

    approve = example("servicebus_pair_cleanup").get_task("approve")

    class Instance:
        def xcom_pull(self, *, task_ids: str) -> list[str]:
            assert task_ids == "planned_queues"
            return QUEUES

    def ask(*, force: bool) -> tuple[str, str]:
        context = {"ti": Instance(), "params": {"force": force}}
        subject, body = (jinja2.Template(text).render(context) for text in (approve.subject, approve.body))
        return subject, body

    assert ask(force=False) == (
        "Delete 2 backlog queues of contoso_pair?",
        f"- `{QUEUES[0]}`\n- `{QUEUES[1]}`\n",
    )
    assert ask(force=True)[1].startswith("**With the messages that they hold, which are lost.**\n\n- `")


def test_a_drill_drills_one_entity_after_the_other_and_sums_up(
    pair: Pair, run_example: RunExample, monkeypatch: pytest.MonkeyPatch
):
    run_example("provision")
    monkeypatch.setenv("AIRFLOW_VAR_SERVICEBUS_PAIR_DRILL_ENTITIES", '["flights", "briefings"]')

    run = run_example("drill", messages=3)
    named = run_example("drill", messages=1, entities=["briefings"])

    assert set(states(run).values()) == {"success"}
    assert results(run)["report"]["passed"] == ["flights", "briefings"]
    assert results(named)["report"]["passed"] == ["briefings"]
    assert [len(contents(pair.primary["contoso"], queue)) for queue in ("flights", "briefings")] == [3, 4]


@pytest.mark.parametrize(
    ("run_type", "late", "begins"),
    [
        ("scheduled", timedelta(minutes=59), True),
        ("scheduled", timedelta(minutes=61), False),
        ("backfill", timedelta(days=1), False),
        ("manual", timedelta(days=1), True),
    ],
)
def test_a_game_day_that_is_past_is_not_made_up_for(example: Example, run_type: str, late: timedelta, *, begins: bool):
    """Airflow starts the last run of a schedule when a DAG is switched on, which may be on any day."""
    ask = example("servicebus_pair_drill").get_task("entities").python_callable
    run = SimpleNamespace(run_type=run_type, run_after=datetime.now(UTC) - late)
    form = {"entities": ["flights"], "messages": 1, "limit": 60, "announce": False}

    if begins:
        assert ask(form, dag_run=run) == ["flights"]
    else:
        with pytest.raises(AirflowSkipException, match="is past: trigger one"):
            ask(form, dag_run=run)


@pytest.mark.parametrize("file", sorted((PROJECT / "dags").glob("*_pair_*.py")), ids=lambda file: file.stem)
def test_a_dag_that_only_people_start_is_not_paused_when_it_is_new(example: Example, file: Path):
    """Triggered while it is paused, it waits without a word."""
    dag = example(file.stem)
    by_itself = {"servicebus_pair_recovery": None, "servicebus_pair_cost": None, "servicebus_pair_drill": True}

    assert dag.is_paused_upon_creation is by_itself.get(dag.dag_id, False)
    assert dag.timetable.can_be_scheduled is (dag.dag_id in by_itself)


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("name", ["by_hand", "drill"])
def test_a_misspelt_question_does_nothing_to_the_entity_of_the_example(run_example: RunExample, name: str):
    """Airflow takes a form with any field; the others have their defaults."""
    run = run_example(name, entity="briefings", reason="a new network")

    assert run.state == "failed"
    assert "success" not in states(run).values()


def test_drills_follow_each_other(example: Example):
    dag = example("servicebus_pair_drill")

    assert dag.get_task("drill").partial_kwargs["max_active_tis_per_dagrun"] == 1
    assert dag.max_active_runs == 1


@pytest.mark.usefixtures("pair")
def test_a_cost_report_takes_prices_from_a_variable_and_the_ledger_from_the_environment(
    run_example: RunExample, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    (tmp_path / "ledger").mkdir()
    prices = {"as_of": "2026-12-01", "currency": "EUR", "tiers": [{"beyond": 0, "per_million": "1.00"}]}
    monkeypatch.setenv("AIRFLOW_VAR_SERVICEBUS_PAIR_PRICES", json.dumps(prices))
    monkeypatch.setenv("SERVICEBUS_PAIR_HOME", str(tmp_path))

    run = run_example("cost", days=1, outage_minutes=60)

    assert states(run) == {"cost": "success"}
    report = results(run)["cost"]
    assert report["planned"]["operations"] == {"empty_receives": 192, "pings": 3600}
    assert report["measured"]["total"] == 0
    assert report["prices"] == {"as_of": "2026-12-01", "currency": "EUR"}


@pytest.mark.usefixtures("pair")
def test_a_cost_report_without_variable_and_environment_uses_list_prices(
    run_example: RunExample, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("SERVICEBUS_PAIR_HOME", raising=False)

    report = results(run_example("cost"))["cost"]

    assert (report["measured"], report["prices"]["currency"]) == (None, "USD")


@pytest.mark.usefixtures("pair")
def test_entities_are_failed_over_and_back_by_hand(run_example: RunExample):
    both = ["flights", "briefings"]

    over = run_example("by_hand", entities=both, reason="a new network", hold_minutes=5)
    failed_over = [shared_health(entity).state for entity in both]
    back = run_example("by_hand", action="fail_back", entities=both, reason="done")

    assert states(over) == {"action": "success", "fail_over": "success", "fail_back": "skipped"}
    assert states(back) == {"action": "success", "fail_over": "skipped", "fail_back": "success"}
    assert failed_over == [State.FAILED_OVER] * 2
    assert [shared_health(entity).state for entity in both] == [State.HEALTHY] * 2
    assert [extra["reason"] for extra in events(f"servicebus_pair.{CONN_ID}.failover")] == ["a new network"] * 2


def test_every_way_to_send_sends(pair: Pair, run_example: RunExample, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("SERVICEBUS_PAIR_HOME", str(tmp_path))

    run = run_example("sends", queue="flights")

    assert set(states(run).values()) == {"success"}
    sent = {task_id: result["sent"] for task_id, result in results(run).items() if isinstance(result, dict)}
    assert sent == {"values": 2, "from_file": 100, "from_task": 1, "crews": 100}
    assert {message.session_id for message in contents(pair.primary["contoso"], "flights")} <= {
        *("22L", "gates", "UA1545", "crew")
    }


def _ours(dag: Any) -> list[Any]:
    return [task for task in dag.tasks if "servicebus_pair" in type(task).__module__ or task.is_mapped]
