"""Canary secrets in every credential field appear in no file, log or response of a complete Airflow."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.system.canary.credentials import CANARIES, connections, official, pair
from tests.system.canary.secret_search import DUMP_COMMAND, find_secrets, without_lines
from tests.system.demo.airflow_api import DagRun
from tests.system.demo.layout import PROJECT, Home
from tests.system.demo.stack import Stack
from tests.system.platform.platform import OPTIONS, Platform

HERE = Path(__file__).parent / "canary"
ROUTES = ("/servicebus-pairs/", "/servicebus-pairs/api/snapshot", "/api/v2/connections?limit=100", "/api/v2/assets")
DAGS = ("canary_refused", "canary_good", "flights_pipeline")


def test_search_finds_encoded_secrets(tmp_path: Path):
    secret = "c4nary0123456789"
    for number in range(3):
        text = f"{'x' * number}{secret}/+= and more"
        (tmp_path / f"{number}.b64").write_bytes(base64.urlsafe_b64encode(text.encode()))
        (tmp_path / f"{number}.url").write_text(quote(text))
    (tmp_path / "clean").write_text(secret[:-1])

    assert find_secrets(tmp_path, {"s": secret}) == [
        f"s in {how}: {number}.{kind}" for number in range(3) for kind, how in (("b64", "base64"), ("url", "clear"))
    ]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A complete Airflow, and what its API responds."""

    system: Platform

    def responses(self, run: DagRun) -> Iterator[str]:
        """Yield all API responses about a run: states, rendered templates, logs, XComs, links."""
        yield self.text(run.path)
        for task in json.loads(self.text(f"{run.path}/taskInstances"))["task_instances"]:
            of_task = f"{run.path}/taskInstances/{task['task_id']}"
            for path in (
                "",
                f"/logs/{max(1, task['try_number'])}?full_content=true",
                "/xcomEntries",
                "/links",
                "/tries",
            ):
                yield self.text(of_task + path)

    def text(self, path: str) -> str:
        response = self.system.api.http.get(path)
        assert response.status_code == httpx.codes.OK, f"{path}: {response.text}"
        return response.text

    def test_connection(self, extra: dict[str, Any]) -> tuple[bool, str]:
        """Test an unsaved connection, like the *Test* button."""
        body = {"connection_id": "unsaved", "conn_type": "servicebus_pair", "extra": json.dumps(extra)}
        response = self.system.api.http.post("/api/v2/connections/test", json=body)
        assert response.status_code == httpx.codes.OK, response.text
        return response.json()["status"], response.json()["message"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("canary") / "home"


@pytest.fixture(scope="module")
def deployment(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A complete Airflow with OpenLineage and Spark event logs, and connections in its database."""
    spark = tmp_path_factory.mktemp("spark")
    events = root / "airflow" / "spark-events"
    settings = {"enabled": "true", "dir": events.as_uri(), "compress": "false"}
    (spark / "spark-defaults.conf").write_text(
        "".join(f"spark.eventLog.{name} {it}\n" for name, it in settings.items())
    )
    transport = {"type": "file", "log_file_path": str(root / "airflow" / "lineage.jsonl"), "append": True}
    options = {
        **OPTIONS,
        "CORE__TEST_CONNECTION": "Enabled",
        "LOGGING__LOGGING_LEVEL": "DEBUG",  # as set for debugging
        "OPENLINEAGE__TRANSPORT": json.dumps(transport),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(spark))
        stack = Stack.create(Home(root), dags=dags_in(tmp_path_factory.mktemp("dags")), options=options)
        stack.airflow.connections["official"] = official(stack.primary)
        events.mkdir(parents=True)
        try:
            system = Platform(stack, stack.start())
            for each in connections(stack.primary, stack.secondary):
                system.api.http.post("/api/v2/connections", json=each).raise_for_status()
            for dag_id in DAGS:
                system.api.wait_for_dag(dag_id, seconds=60)
            yield Deployment(system)
        finally:
            stack.processes.stop()


def dags_in(folder: Path) -> Path:
    """Link the example pipeline and the DAGs of this test into a folder."""
    for source in (
        PROJECT / "dags" / "flights_pipeline.py",
        HERE / "dags" / "canary.py",
    ):
        (folder / source.name).symlink_to(source)
    (folder / "jobs").symlink_to(PROJECT / "dags" / "jobs")
    return folder


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(120)
def test_connection_test_distinguishes_a_wrong_key_from_an_unreachable_host(deployment: Deployment):
    primary, secondary = deployment.system.stack.primary, deployment.system.stack.secondary
    refused = primary.connection_string.replace(CANARIES["true"], CANARIES["key"])
    nowhere = {"secondary_connection_string": secondary.connection_string.replace(str(secondary.amqp_port), "1")}

    good = deployment.test_connection(pair(primary, secondary))
    wrong = deployment.test_connection(pair(primary, secondary, primary_connection_string=refused))
    unreachable = deployment.test_connection(pair(primary, secondary, **nowhere))

    everything = "reach yes, authenticate yes, send yes, listen yes, manage yes"
    assert good[0], good[1]
    assert good[1].startswith(f"primary contoso: {everything}; secondary contoso-dr: reach yes, authenticate yes")
    assert not wrong[0]
    assert wrong[1].startswith("primary contoso: reach yes, authenticate no"), wrong[1]
    assert not unreachable[0]
    assert unreachable[1].startswith(f"primary contoso: {everything}; secondary contoso-dr: reach no ("), unreachable[1]
    for _, message in (good, wrong, unreachable):
        assert "Traceback" not in message
        assert not [name for name, canary in CANARIES.items() if canary in message]


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(600)
def test_no_credential_in_files_logs_and_responses(deployment: Deployment, root: Path):
    system, api = deployment.system, deployment.system.api
    pipeline = api.trigger("flights_pipeline", conf={"month": 2, "rate": 20_000})
    refused = api.trigger("canary_refused", conf={})
    assert system.wait_for_end(pipeline) == "success", api.tasks(pipeline)
    assert system.wait_for_end(refused) == "failed"
    with system.outage(entity="flights"):
        deferred = api.trigger("canary_good", conf={})
        system.wait_for_state(deferred, "drain", "deferred")
    assert system.wait_for_end(deferred) == "success"

    responses = [text for run in (pipeline, refused, deferred) for text in deployment.responses(run)]
    responses += [deployment.text(path) for path in ROUTES]
    (root / "responses.txt").write_text("\n".join(responses))
    system.stack.processes.stop()
    dump = root / "dump.sql"
    with dump.open("wb") as output:
        subprocess.run([*DUMP_COMMAND, str(root / "airflow" / "airflow.db")], stdout=output, check=True)

    assert failed(task_states(responses)) >= {
        "send_key",
        "send_secret",
        "careless_official",
        "provision_key",
        "send_broken",
    }
    assert "c4nary" not in dump.read_text()
    assert 'INSERT INTO "asset_state_store"' in dump.read_text()
    assert "careless_signature" in dump.read_text()
    assert '"servicebusPair_routes"' in (root / "airflow" / "lineage.jsonl").read_text()
    assert list((root / "airflow" / "spark-events").iterdir()) != []
    # Airflow masks what a task prints and raises in the task log, but the scheduler's output (LocalExecutor) repeats
    # the one and the OpenLineage event the other without masking (Airflow 3.3). Ignore these lines.
    for file in (root / "logs" / "airflow-scheduler.log", root / "airflow" / "lineage.jsonl"):
        file.write_bytes(without_lines(file.read_bytes(), b"careless:"))
    assert find_secrets(root, CANARIES) == []


def task_states(responses: list[str]) -> dict[str, str]:
    bodies = [json.loads(text) for text in responses if text.startswith("{")]
    return {each["task_id"]: each["state"] for each in bodies if "task_id" in each and "state" in each}


def failed(states: dict[str, str]) -> set[str]:
    return {task_id for task_id, state in states.items() if state == "failed"}
