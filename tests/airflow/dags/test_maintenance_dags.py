"""The provision, cleanup, drill, cost, failover and send example DAGs."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias

import pytest

from servicebus_pair import dags
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.health_state import HealthState
from servicebus_pair.dags import cleanup_dag
from tests.airflow.conftest import (
    BACKLOG,
    CONN_ID,
    EXAMPLES,
    Example,
    Pair,
    RunDag,
    events,
    results,
    shared_health,
    states,
)
from tests.airflow.support.queues import contents
from tests.security.canaries import CANARIES, disclosed, outcome

RunExample: TypeAlias = Callable[..., Any]
DAGS = ("provision", "recovery", "cleanup", "drill", "cost", "by_hand", "sends")


@pytest.fixture
def run_example(run_dag: RunDag, example: Example) -> RunExample:
    """Run an example with these fields of its form."""

    def run(name: str, **form: Any) -> Any:
        # Loaded again, because dag.test stores the fields of a form in the DAG that it runs.
        return run_dag(example(f"servicebus_pair_{name}"), run_conf=form)

    return run


@pytest.mark.parametrize("name", DAGS)
def test_every_dag_has_docs_typed_params_and_the_connection_of_the_environment(
    example: Example, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SERVICEBUS_PAIR_CONN_ID", "other_pair")

    dag = example(f"servicebus_pair_{name}")

    assert dag.doc_md
    assert "servicebus_pair" in dag.tags
    assert f"servicebus_pair_{name}" == dag.dag_id
    schemas = [dag.params.get_param(each).schema for each in dag.params]
    assert schemas
    assert all(schema.get("title") and (schema.get("type") or schema.get("enum")) for schema in schemas)
    assert {task.servicebus_pair_conn_id for task in dag.tasks if hasattr(task, "servicebus_pair_conn_id")} <= {
        "other_pair"
    }
    own = [task for task in dag.tasks if "servicebus_pair" in type(task).__module__ or task.is_mapped]
    assert any("other_pair" in str(vars(task)) or "other_pair" in str(task.partial_kwargs) for task in own)


@pytest.mark.usefixtures("pair")
def test_a_cleanup_with_nothing_to_delete_needs_no_approval(run_example: RunExample):
    run_example("provision")

    run = run_example("cleanup")

    done, not_done = ("plan", "planned_queues"), ("approve", "delete", "report")
    assert states(run) == dict.fromkeys(done, "success") | dict.fromkeys(not_done, "skipped")


def test_the_approval_lists_the_queues_warns_of_lost_messages_and_expires_as_a_rejection():
    import jinja2

    dag = cleanup_dag(servicebus_pair_conn_id=CONN_ID, approval_timeout=timedelta(hours=2))
    approve: Any = dag.get_task("approve")
    limit = getattr(approve, "response_timeout", approve.execution_timeout)  # older providers
    assert (approve.defaults, limit) == (["Reject"], timedelta(hours=2))
    assert sorted(approve.downstream_task_ids) == ["delete"]

    class Instance:
        def xcom_pull(self, *, task_ids: str) -> list[str]:
            assert task_ids == "planned_queues"
            return BACKLOG

    def ask(*, force: bool) -> tuple[str, str]:
        context = {"ti": Instance(), "params": {"force": force}}
        subject, body = (jinja2.Template(text).render(context) for text in (approve.subject, approve.body))
        return subject, body

    assert ask(force=False) == (
        "Delete 2 backlog queues of contoso_pair?",
        f"- `{BACKLOG[0]}`\n- `{BACKLOG[1]}`\n",
    )
    assert ask(force=True)[1].startswith("**Including the messages that they hold, which will be lost.**\n\n- `")


def test_drills_run_per_entity_one_at_a_time_and_are_summarised(pair: Pair, example: Example, run_example: RunExample):
    dag = example("servicebus_pair_drill")
    assert (dag.get_task("drill").partial_kwargs["max_active_tis_per_dagrun"], dag.max_active_runs) == (1, 1)
    run_example("provision")

    run = run_example("drill", messages=3, entities=["flights", "briefings"])
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
def test_a_late_scheduled_drill_is_skipped(example: Example, run_type: str, late: timedelta, *, begins: bool):
    """When a DAG is unpaused, Airflow starts the last run of its schedule, however late."""
    ask = example("servicebus_pair_drill").get_task("entities_to_drill").python_callable
    run = SimpleNamespace(run_type=run_type, run_after=datetime.now(UTC) - late)
    form = {"entities": ["flights"], "messages": 1, "limit": 60, "announce": False}

    assert ask(form, dag_run=run) == (["flights"] if begins else [])


@pytest.mark.parametrize("name", [*DAGS, "redrive", "at_scale", "proof"])
def test_manually_triggered_dags_are_created_unpaused(example: Example, name: str):
    """A run that is triggered while its DAG is paused waits silently."""
    dag = example(f"servicebus_pair_{name}")
    scheduled = {"recovery": None, "proof": None, "cost": None, "drill": True}

    assert dag.is_paused_upon_creation is scheduled.get(name, False)
    assert dag.timetable.can_be_scheduled is (name in scheduled)


FACTORIES = [name for name in dags.__all__ if name.endswith("_dag")]


@pytest.mark.parametrize("name", FACTORIES)
def test_every_factory_makes_a_dag_of_any_pair_with_arguments_of_its_author(name: str):
    """A DAG per pair: the names differ, and no argument of DAG is out of reach."""
    factory = getattr(dags, name)
    needed = {"entities": ["flights"], "ledger": "ledger", "output": "output"}
    given = {each: needed[each] for each in inspect.signature(factory).parameters if each in needed}

    made = [factory(servicebus_pair_conn_id=conn_id, tags=["mine"], **given) for conn_id in ("a_pair", "b.pair")]

    purpose = name.removesuffix("_dag")
    assert [dag.dag_id for dag in made] == [f"a_pair_{purpose}", f"b.pair_{purpose}"]
    assert all(dag.tags == {"mine"} and dag.doc_md for dag in made)
    assert factory(dag_id="own", **given).dag_id == "own"
    with pytest.raises(ConfigurationError, match="servicebus_pair_conn_id is"):
        factory(servicebus_pair_conn_id="{{ conn }}", **given)


def test_the_examples_are_all_in_one_package_and_import_no_siblings():
    for file in EXAMPLES.glob("*.py"):
        imported = re.findall(r"^(?:from|import) ([\w.]+)", file.read_text(), flags=re.MULTILINE)
        local = [each for each in imported if (file.parent / f"{each.partition('.')[0]}.py").exists()]
        assert local == [], file.name


@pytest.mark.usefixtures("pair")
@pytest.mark.parametrize("name", ["by_hand", "drill"])
def test_a_misspelt_form_field_fails_before_anything_changes(run_example: RunExample, name: str):
    """Airflow accepts a form with unknown fields."""
    run = run_example(name, entity="briefings", reason="a new network")

    assert run.state == "failed"
    assert "success" not in states(run).values()


@pytest.mark.parametrize("canary", CANARIES.values(), ids=CANARIES)
def test_a_secret_in_a_form_is_neither_returned_nor_quoted(example: Example, canary: Any):
    """What a task returns is in its XCom and in logs."""
    ask = example("servicebus_pair_drill").get_task("entities_to_drill").python_callable
    choose = example("servicebus_pair_by_hand").get_task("action").python_callable
    run = SimpleNamespace(run_type="manual")

    for form in ({"entities": ["flights", canary]}, {"entities": ["flights"], str(canary): 1}):
        assert not disclosed(outcome(partial(ask, form, dag_run=run)))
        assert not disclosed(outcome(partial(choose, {"action": "fail_back", **form})))


@pytest.mark.usefixtures("pair")
def test_the_cost_report_reads_prices_and_ledger_from_the_deployment(
    run_example: RunExample, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("SERVICEBUS_PAIR_HOME", raising=False)
    default = results(run_example("cost"))["cost"]
    (tmp_path / "ledger").mkdir()
    prices = {"as_of": "2026-12-01", "currency": "EUR", "tiers": [{"beyond": 0, "per_million": "1.00"}]}
    monkeypatch.setenv("AIRFLOW_VAR_SERVICEBUS_PAIR_PRICES", json.dumps(prices))
    monkeypatch.setenv("SERVICEBUS_PAIR_HOME", str(tmp_path))

    run = run_example("cost", days=1, outage_minutes=60)

    assert (default["measured"], default["prices"]["currency"]) == (None, "USD")
    report = results(run)["cost"]
    assert report["planned"]["operations"] == {"empty_receives": 192, "pings": 3600}
    assert report["measured"]["total"] == 0
    assert report["prices"] == {"as_of": "2026-12-01", "currency": "EUR"}


@pytest.mark.usefixtures("pair")
def test_manual_failover_and_failback(run_example: RunExample):
    both = ["flights", "briefings"]

    over = run_example("by_hand", entities=both, reason="a new network", hold_minutes=5)
    failed_over = [shared_health(entity).state for entity in both]
    back = run_example("by_hand", action="fail_back", entities=both, reason="done")

    assert states(over) == {"action": "success", "fail_over": "success", "fail_back": "skipped"}
    assert states(back) == {"action": "success", "fail_over": "skipped", "fail_back": "success"}
    assert failed_over == [HealthState.FAILED_OVER] * 2
    assert [shared_health(entity).state for entity in both] == [HealthState.HEALTHY] * 2
    assert [extra["reason"] for extra in events("failover")] == ["a new network"] * 2


def test_every_way_to_send_delivers(
    pair: Pair, run_example: RunExample, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("SERVICEBUS_PAIR_HOME", str(tmp_path))

    run = run_example("sends", queue="flights")

    assert set(states(run).values()) == {"success"}
    sent = {task_id: result["sent"] for task_id, result in results(run).items() if isinstance(result, dict)}
    assert results(run)["gates"] == 11
    assert sent == {"values": 2, "from_file": 100, "from_task": 1, "crews": 100}
    assert {message.session_id for message in contents(pair.primary["contoso"], "flights")} <= {
        *("22L", "gates", "UA1545", "crew", None)
    }
