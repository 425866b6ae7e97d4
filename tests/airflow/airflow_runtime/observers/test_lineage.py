"""Lineage of tasks as OpenLineage's own listener reports it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from airflow.sdk import DAG, task

from servicebus_pair.airflow_runtime.observers.lineage import TaskLineage
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from tests.airflow.conftest import BACKLOG, CONN_ID, HERE, KEY, Pair, RunDag, run_task, states
from tests.airflow.support import tasks
from tests.airflow.support.python_process import run_python
from tests.airflow.support.queues import divert
from tests.airflow.support.tasks import drain

Reported: TypeAlias = "Callable[[], dict[str, Any]]"
Dataset: TypeAlias = tuple[str, str, int]


@pytest.fixture
def reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Reported]:
    """The last task event that OpenLineage's own listener wrote to a file."""
    from airflow.providers.openlineage import conf

    # The plugin is off, as no transport is configured when it is imported: one listener is enough.
    from airflow.providers.openlineage.plugins import openlineage  # noqa: F401
    from airflow.providers.openlineage.plugins.listener import OpenLineageListener
    from airflow.sdk.execution_time import task_runner

    class TaskListener(OpenLineageListener):
        """Without the events of whole runs, which it sends from other processes."""

        on_dag_run_running: Any = None
        on_dag_run_success: Any = None
        on_dag_run_failed: Any = None

    file = tmp_path / "lineage.jsonl"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__EXECUTE_IN_THREAD", "True")  # pytest does not outlive a fork
    cached = [each for each in vars(conf).values() if hasattr(each, "cache_clear")]
    for each in cached:
        each.cache_clear()
    listener = TaskListener()
    manager: Any = task_runner.get_listener_manager()  # type: ignore[attr-defined]
    manager.add_listener(listener)

    def last() -> Any:
        return json.loads(file.read_text().splitlines()[-1])

    yield last
    manager.pm.unregister(listener)
    for each in cached:
        each.cache_clear()


def send(**parameters: Any) -> ServiceBusPairSendOperator:
    return tasks.send(**{"entity": "Flights", "messages": ["a", "b"], **parameters})


def outputs(event: dict[str, Any], kind: str = "output") -> list[Dataset]:
    """Return the namespace, name and row count of each dataset."""
    found = [(each, each[f"{kind}Facets"][f"{kind}Statistics"]) for each in event[f"{kind}s"]]
    assert all(bool(statistics["rowCount"]) == bool(statistics["size"]) for _, statistics in found)
    return [(each["namespace"], each["name"], statistics["rowCount"]) for each, statistics in found]


def inputs(event: dict[str, Any]) -> list[Dataset]:
    return outputs(event, "input")


def routes(event: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = event["run"]["facets"]["servicebusPair_routes"]["routes"]
    return found


def dataset_names(pair: Pair) -> tuple[str, str]:
    primary, secondary = pair.primary["contoso"], pair.secondary["contoso-dr"]
    return f"servicebus://{primary.host}:{primary.amqp_port}", f"servicebus://{secondary.host}:{secondary.amqp_port}"


def test_a_send_writes_its_entity(pair: Pair, run_dag: RunDag, reported: Reported):
    run_task(run_dag, send)

    event = reported()
    primary, _ = dataset_names(pair)
    assert event["eventType"] == "COMPLETE"
    assert outputs(event) == [(primary, "flights", 2)]
    assert event["inputs"] == []
    [only] = routes(event)
    assert (only["route"], only["entity"], only["messages"], "queue" in only) == ("primary", "flights", 2, False)
    assert KEY not in json.dumps(event)


def test_a_diverting_send_writes_both_the_entity_and_the_backlog_queue(pair: Pair, run_dag: RunDag, reported: Reported):
    run_task(run_dag, lambda: send(task_id="before"))
    asyncio.run(divert(pair, count=0))
    pair.primary.kill()

    run_task(run_dag, send)

    primary, secondary = dataset_names(pair)
    event = reported()
    [into] = [each["queue"] for each in routes(event)]
    assert outputs(event) == [(primary, "flights", 0), (secondary, into, 2)]
    assert into in BACKLOG


def test_a_failed_send_reports_what_was_accepted(pair: Pair, run_dag: RunDag, reported: Reported):
    with DAG("failing", schedule=None) as dag:

        @task.servicebus_send(servicebus_pair_conn_id=CONN_ID, entity="flights")
        def rows() -> Iterator[str]:
            yield from ["x"] * 2_001
            raise LookupError("the source is gone")

        rows()

    assert states(run_dag(dag)) == {"rows": "failed"}
    event = reported()
    assert event["eventType"] == "FAIL"
    assert outputs(event) == [(dataset_names(pair)[0], "flights", 2_000)]


@pytest.mark.slow
def test_a_syphon_reads_the_backlog_and_writes_its_destinations_across_deferrals(
    pair: Pair, run_dag: RunDag, reported: Reported
):
    asyncio.run(divert(pair, "flights", count=50))
    asyncio.run(divert(pair, "briefings", count=2))

    run_task(run_dag, lambda: drain(rate=30, burst=timedelta(seconds=2), deferrable=True, poll_interval=1))

    primary, secondary = dataset_names(pair)
    event = reported()
    assert sorted(outputs(event)) == [(primary, "briefings", 2), (primary, "flights", 50)]
    assert [(place, queue) for place, queue, _ in inputs(event)] == [(secondary, queue) for queue in BACKLOG]
    assert sum(rows for _, _, rows in inputs(event)) == 52
    assert {each["route"] for each in routes(event)} == {"syphoned"}


def test_a_task_that_failed_before_opening_the_pair_reports_no_datasets(run_dag: RunDag, reported: Reported):
    with DAG("lost", schedule=None) as dag:
        send(servicebus_pair_conn_id="unknown_pair")

    assert states(run_dag(dag)) == {"send": "failed"}
    assert "servicebus://" not in json.dumps([reported()["inputs"], reported()["outputs"]])


def test_dead_letters_are_counted_by_queue():
    from servicebus_pair.core.model.events import DeadLettered

    lineage = TaskLineage()
    for number in range(2):
        lineage.observe(DeadLettered(BACKLOG[0].upper(), str(number), "NoDestination", 0.0))

    assert TaskLineage(json.loads(json.dumps(lineage.to_json()))).to_json() == [
        {"route": "dead_lettered", "entity": None, "queue": BACKLOG[0], "messages": 2, "bytes": 0}
    ]


WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "openlineage" or name.startswith("airflow.providers.openlineage"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())

import importlib.metadata
import importlib_metadata  # which Airflow reads by on Python 3.11

for metadata in (importlib.metadata, importlib_metadata):
    installed = list(metadata.distributions())
    metadata.distributions = lambda found=installed: (each for each in found if "openlineage" not in each.name)

import os
from tests.airflow.support.dag_bag import DagBag, sync_bag_to_db
from airflow.sdk import DAG
from servicebus_pair.operators.send import ServiceBusPairSendOperator

with DAG("without_lineage", schedule=None) as dag:
    ServiceBusPairSendOperator(task_id="send", servicebus_pair_conn_id="contoso_pair", entity="flights", messages=["a"])
bag = DagBag(os.devnull)
dag.fileloc = dag.relative_fileloc = os.environ["DAG_FILE"]
bag.bag_dag(dag)
sync_bag_to_db(bag, "dags-folder", None)
ended = dag.test().state
ours = "servicebus_pair.airflow_runtime.observers.openlineage"
print("ended:", ended, any(name.startswith(("openlineage", ours)) for name in sys.modules))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("pair")
def test_tasks_work_without_openlineage_installed():
    printed = run_python(WITHOUT, DAG_FILE=str(HERE / "test_lineage.py"))

    assert "ended: success False" in printed
