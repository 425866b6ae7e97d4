"""OpenLineage learns from its own listener what a task read and wrote, and how much by which route (issue 5)."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from airflow.sdk import DAG, task

from servicebus_pair.hooks.lineage import TaskLineage
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from tests.airflow.conftest import CONN_ID, HERE, KEY, PROJECT, Pair, RunDag, run_task, states
from tests.airflow.queues import divert

QUEUES = [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]
Told: TypeAlias = "Callable[[], dict[str, Any]]"
Dataset: TypeAlias = tuple[str, str, int]


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    """The last event of a task that OpenLineage's listener, with all that it does, wrote to a file."""
    from airflow.providers.openlineage import conf

    # The plugin is off, as no transport is configured when it is imported: one listener is enough.
    from airflow.providers.openlineage.plugins import openlineage  # noqa: F401
    from airflow.providers.openlineage.plugins.listener import OpenLineageListener
    from airflow.sdk.listener import get_listener_manager

    class TaskListener(OpenLineageListener):
        """Without the events of whole runs, which it hands to processes of its own."""

        on_dag_run_running = on_dag_run_success = on_dag_run_failed = None

    file = tmp_path / "lineage.jsonl"
    transport = {"type": "file", "log_file_path": str(file), "append": True}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(transport))
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__EXECUTE_IN_THREAD", "True")  # pytest does not outlive a fork
    cached = [each for each in vars(conf).values() if hasattr(each, "cache_clear")]
    for each in cached:
        each.cache_clear()
    listener = TaskListener()
    manager = get_listener_manager()
    manager.add_listener(listener)

    def last() -> dict[str, Any]:
        return json.loads(file.read_text().splitlines()[-1])

    yield last
    manager.pm.unregister(listener)
    for each in cached:
        each.cache_clear()


def send(**parameters: Any) -> ServiceBusPairSendOperator:
    return ServiceBusPairSendOperator(
        **{"task_id": "send", "conn_id": CONN_ID, "entity": "Flights", "messages": ["a", "b"], **parameters}
    )


def written(event: dict[str, Any]) -> list[Dataset]:
    return [_counted(each, "outputFacets", "outputStatistics") for each in event["outputs"]]


def read(event: dict[str, Any]) -> list[Dataset]:
    return [_counted(each, "inputFacets", "inputStatistics") for each in event["inputs"]]


def _counted(dataset: dict[str, Any], facets: str, name: str) -> Dataset:
    statistics = dataset[facets][name]
    assert bool(statistics["rowCount"]) == bool(statistics["size"])
    return dataset["namespace"], dataset["name"], statistics["rowCount"]


def routes(event: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = event["run"]["facets"]["servicebusPair_routes"]["routes"]
    return found


def places(pair: Pair) -> tuple[str, str]:
    primary, secondary = pair.primary["contoso"], pair.secondary["contoso-dr"]
    return f"servicebus://{primary.host}:{primary.amqp_port}", f"servicebus://{secondary.host}:{secondary.amqp_port}"


def test_a_send_writes_its_entity(pair: Pair, run_dag: RunDag, told: Told):
    run_task(run_dag, send)

    event = told()
    primary, _ = places(pair)
    assert event["eventType"] == "COMPLETE"
    assert written(event) == [(primary, "flights", 2)]
    assert event["inputs"] == []
    [only] = routes(event)
    assert (only["route"], only["entity"], only["messages"], "queue" in only) == ("primary", "flights", 2, False)
    assert KEY not in json.dumps(event)


def test_what_a_function_yields_is_told_of_too(pair: Pair, run_dag: RunDag, told: Told):
    @task.servicebus_send(conn_id=CONN_ID, entity="flights")
    def rows() -> Iterator[str]:
        yield from "abc"

    run_task(run_dag, rows)

    assert written(told()) == [(places(pair)[0], "flights", 3)]


@pytest.mark.apart
def test_a_send_that_diverts_writes_the_backlog_queue_beside_its_entity(pair: Pair, run_dag: RunDag, told: Told):
    run_task(run_dag, lambda: send(task_id="before"))
    asyncio.run(divert(pair, count=0))
    pair.primary.kill()

    run_task(run_dag, send)

    primary, secondary = places(pair)
    event = told()
    [into] = [each["queue"] for each in routes(event)]
    assert written(event) == [(primary, "flights", 0), (secondary, into, 2)]
    assert into in QUEUES


def test_a_send_that_fails_tells_what_was_accepted_before(pair: Pair, run_dag: RunDag, told: Told):
    with DAG("failing", schedule=None) as dag:

        @task.servicebus_send(conn_id=CONN_ID, entity="flights")
        def rows() -> Iterator[str]:
            yield from ["x"] * 2_001
            raise LookupError("the source is gone")

        rows()

    assert states(run_dag(dag)) == {"rows": "failed"}
    event = told()
    assert event["eventType"] == "FAIL"
    assert written(event) == [(places(pair)[0], "flights", 2_000)]


@pytest.mark.slow
def test_a_syphon_reads_the_backlog_and_writes_its_destinations_over_all_its_deferrals(
    pair: Pair, run_dag: RunDag, told: Told
):
    asyncio.run(divert(pair, "flights", count=50))
    asyncio.run(divert(pair, "briefings", count=2))

    run_task(
        run_dag,
        lambda: ServiceBusPairSyphonOperator(
            task_id="drain", conn_id=CONN_ID, rate=30, burst=timedelta(seconds=2), deferrable=True, poll_interval=1
        ),
    )

    primary, secondary = places(pair)
    event = told()
    assert sorted(written(event)) == [(primary, "briefings", 2), (primary, "flights", 50)]
    assert [(place, queue) for place, queue, _ in read(event)] == [(secondary, queue) for queue in QUEUES]
    assert sum(rows for _, _, rows in read(event)) == 52
    assert {each["route"] for each in routes(event)} == {"syphoned"}


def test_a_drain_of_an_empty_backlog_has_read_it_and_written_nothing(pair: Pair, run_dag: RunDag, told: Told):
    asyncio.run(divert(pair, count=0))

    run_task(run_dag, lambda: ServiceBusPairSyphonOperator(task_id="drain", conn_id=CONN_ID, queues=QUEUES[:1]))

    assert read(told()) == [(places(pair)[1], QUEUES[0], 0)]
    assert told()["outputs"] == []


def test_a_task_that_never_came_to_its_work_tells_of_no_place(run_dag: RunDag, told: Told):
    with DAG("lost", schedule=None) as dag:
        send(conn_id="nobodys_pair")

    assert states(run_dag(dag)) == {"send": "failed"}
    assert "servicebus://" not in json.dumps([told()["inputs"], told()["outputs"]])


def test_dead_letters_are_counted_by_queue():
    from servicebus_pair.core.events import DeadLettered

    lineage = TaskLineage()
    for number in range(2):
        lineage.observe(DeadLettered(QUEUES[0].upper(), str(number), "NoDestination", 0.0))

    assert TaskLineage(json.loads(json.dumps(lineage.carry()))).carry() == [
        {"route": "dead_lettered", "entity": None, "queue": QUEUES[0], "messages": 2, "bytes": 0}
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
from airflow.dag_processing.dagbag import DagBag, sync_bag_to_db
from airflow.sdk import DAG
from servicebus_pair.operators.send import ServiceBusPairSendOperator

with DAG("without_lineage", schedule=None) as dag:
    ServiceBusPairSendOperator(task_id="send", conn_id="contoso_pair", entity="flights", messages=["a"])
bag = DagBag(os.devnull)
dag.fileloc = dag.relative_fileloc = os.environ["DAG_FILE"]
bag.bag_dag(dag)
sync_bag_to_db(bag, "dags-folder", None)
ended = dag.test().state
print("ended:", ended, any(name.startswith(("openlineage", "servicebus_pair.hooks.openl")) for name in sys.modules))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("pair")
def test_without_openlineage_a_task_works_and_asks_for_nothing_of_it():
    environment = {**os.environ, "DAG_FILE": str(HERE / "test_lineage.py")}

    ended = subprocess.run(
        [sys.executable, "-c", WITHOUT],
        env=environment,
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )

    assert "ended: success False" in ended.stdout, ended.stdout + ended.stderr
