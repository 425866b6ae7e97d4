"""``flights_pipeline``, the first DAG of the README, and the plugins folder."""

from __future__ import annotations

import importlib
import json

import pytest

from tests.airflow.conftest import PROJECT, Example, Pair, RunDag, results, states
from tests.airflow.support.queues import contents


def test_the_pipeline_provisions_then_publishes_then_records(example: Example):
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


@pytest.mark.parametrize(("month", "message"), [(3, "3"), (None, "all")])
def test_the_form_accepts_a_month_or_null(example: Example, month: int | None, message: str):
    pipeline = example("flights_pipeline")
    schemas = {name: pipeline.params.get_param(name).schema for name in ("month", "rate")}
    assert (schemas["month"]["minimum"], schemas["month"]["maximum"], schemas["rate"]["minimum"]) == (1, 12, 1)
    pipeline.params.update({"month": month})
    params = pipeline.params.validate()
    publish, send = pipeline.get_task("publish_flights"), pipeline.get_task("send_briefing")
    arguments = [
        pipeline.get_template_env().from_string(text).render(params=params) for text in publish.application_args[:3]
    ]
    (body, *_) = [pipeline.get_template_env().from_string(each["body"]).render(params=params) for each in send.messages]

    assert arguments[2:] == [f"--month={message}"]
    assert json.loads(body)["month"] == message


def test_environment_variables_configure_the_pipeline_and_spark(example: Example, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SERVICEBUS_PAIR_CONN_ID", "other_pair")
    monkeypatch.setenv("SERVICEBUS_PAIR_SPARK_CONN_ID", "cluster")
    monkeypatch.setenv("SERVICEBUS_PAIR_SPARK_CONF", '{"spark.executor.memory": "4g", "spark.ui.enabled": "true"}')

    pipeline = example("flights_pipeline")
    publish = pipeline.get_task("publish_flights")

    assert set(publish.env_vars) == {"SPARK_HOME", "PYSPARK_PYTHON"}
    assert {task.servicebus_pair_conn_id for task in pipeline.tasks if hasattr(task, "servicebus_pair_conn_id")} == {
        "other_pair"
    }
    assert publish.application_args[:2] == ["--pair", "env:AIRFLOW_CONN_OTHER_PAIR"]
    assert publish._conn_id == "cluster"
    assert (publish.conf["spark.executor.memory"], publish.conf["spark.ui.enabled"]) == ("4g", "true")
    assert publish.conf["spark.speculation"] == "false"


def test_the_reference_to_the_settings_is_configurable(example: Example, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SERVICEBUS_PAIR_REFERENCE", "file:/etc/pair.json")

    publish = example("flights_pipeline").get_task("publish_flights")

    assert publish.application_args[:2] == ["--pair", "file:/etc/pair.json"]


def test_the_first_dag_of_the_readme_sends(pair: Pair, run_dag: RunDag, example: Example):
    run = run_dag(example("first_send"))

    assert states(run) == {"send": "success"}
    assert results(run)["send"]["primary"] == 2
    assert [message.body for message in contents(pair.primary["contoso"], "briefings")] == [
        "Runway 22L is closed.",
        "Runway 22L is open.",
    ]


def test_the_plugins_folder_adds_nothing_to_an_installed_distribution(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(PROJECT / "plugins"))

    shim = importlib.import_module("servicebus_pair_plugin")

    assert not hasattr(shim, "ServiceBusPairPlugin")
