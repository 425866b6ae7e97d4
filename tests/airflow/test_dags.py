"""The example DAGs: what they are made of, what starts them, and that they run."""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Callable
from typing import Any, TypeAlias

import pytest

from tests.airflow.conftest import PROJECT, Pair, RunDag, results, states
from tests.airflow.queues import contents

Example: TypeAlias = Callable[[str], Any]


def test_the_pipeline_provisions_then_publishes_and_sends_then_records(example: Example):
    pipeline = example("flights_pipeline")

    assert {task.task_id: sorted(task.downstream_task_ids) for task in pipeline.tasks} == {
        "provision": ["known_health", "send_briefing"],
        "known_health": ["publish_flights"],
        "publish_flights": ["record_health"],
        "send_briefing": ["record_health"],
        "record_health": [],
    }
    assert all(task.retries >= 2 for task in pipeline.tasks)
    assert pipeline.doc_md


def test_the_pipelines_form_knows_its_ranges(example: Example):
    schemas = {name: example("flights_pipeline").params.get_param(name).schema for name in ("month", "rate")}

    assert (schemas["month"]["minimum"], schemas["month"]["maximum"]) == (1, 12)
    assert schemas["rate"]["minimum"] == 1


@pytest.mark.parametrize(("month", "told"), [(3, "3"), (None, "all")])
def test_the_pipelines_form_takes_a_month_or_nothing_for_the_year(example: Example, month: int | None, told: str):
    pipeline = example("flights_pipeline")
    pipeline.params.update({"month": month})
    params = pipeline.params.validate()
    publish, send = pipeline.get_task("publish_flights"), pipeline.get_task("send_briefing")
    arguments = [
        pipeline.get_template_env().from_string(text).render(params=params) for text in publish.application_args[:4]
    ]
    (body, *_) = [pipeline.get_template_env().from_string(each["body"]).render(params=params) for each in send.messages]

    assert arguments[2:] == ["--month", told]
    assert json.loads(body)["month"] == told


def test_the_spark_job_is_told_where_the_connection_is_and_never_what_it_holds(example: Example):
    publish = example("flights_pipeline").get_task("publish_flights")

    assert publish.application_args[:2] == ["--pair", "env:AIRFLOW_CONN_CONTOSO_PAIR"]
    assert set(publish.env_vars) == {"SPARK_HOME", "PYSPARK_PYTHON"}
    assert publish.conf["spark.speculation"] == "false"


def test_pipeline_and_spark_are_configured_by_their_environment(example: Example, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SERVICEBUS_PAIR_CONN_ID", "other_pair")
    monkeypatch.setenv("SERVICEBUS_PAIR_SPARK_CONN_ID", "cluster")
    monkeypatch.setenv("SERVICEBUS_PAIR_SPARK_CONF", '{"spark.executor.memory": "4g", "spark.ui.enabled": "true"}')

    pipeline = example("flights_pipeline")
    publish = pipeline.get_task("publish_flights")

    assert {task.conn_id for task in pipeline.tasks if hasattr(task, "conn_id")} == {"other_pair"}
    assert publish.application_args[:2] == ["--pair", "env:AIRFLOW_CONN_OTHER_PAIR"]
    assert publish._conn_id == "cluster"
    assert (publish.conf["spark.executor.memory"], publish.conf["spark.ui.enabled"]) == ("4g", "true")
    assert publish.conf["spark.speculation"] == "false"


def test_a_job_can_be_told_of_another_place_for_the_pairs_settings(example: Example, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SERVICEBUS_PAIR_REFERENCE", "file:/etc/pair.json")

    for dag_id, task_id in (("flights_pipeline", "publish_flights"), ("servicebus_pair_recovery", "reconcile")):
        assert example(dag_id).get_task(task_id).application_args[:2] == ["--pair", "file:/etc/pair.json"]


def test_the_first_dag_of_the_readme_sends(pair: Pair, run_dag: RunDag, example: Example):
    run = run_dag(example("first_send"))

    assert states(run) == {"send": "success"}
    assert results(run)["send"]["primary"] == 2
    assert [message.body for message in contents(pair.primary["contoso"], "briefings")] == [
        "Runway 22L is closed.",
        "Runway 22L is open.",
    ]


@pytest.mark.parametrize("file", sorted((PROJECT / "dags").glob("*.py")), ids=lambda file: file.stem)
def test_every_snippet_that_begins_also_ends(file: Any):
    text = file.read_text()

    starts = re.findall(r"# \[START (\w+)\]", text)
    assert starts == re.findall(r"# \[END (\w+)\]", text)
    assert len(set(starts)) == len(starts)
    assert starts or "airflow" not in text, "a DAG is shown on a page"


def test_the_plugin_of_the_folder_adds_nothing_where_the_distribution_is_installed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(PROJECT / "plugins"))

    shim = importlib.import_module("servicebus_pair_plugin")

    assert not hasattr(shim, "ServiceBusPairPlugin")
