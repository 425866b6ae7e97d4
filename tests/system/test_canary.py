"""A secret in each credential field appears nowhere that a whole Airflow writes or answers (issue 5)."""

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

from servicebus_emulator import Fault, FaultKind
from tests.system.canary.credentials import CANARIES, connections, official, pair
from tests.system.canary.searching import DUMP, found, without_lines
from tests.system.demo.layout import PROJECT, Home
from tests.system.demo.rest import DagRun
from tests.system.demo.stack import Stack
from tests.system.whole.platform import OPTIONS, Platform

HERE = Path(__file__).parent / "canary"
ROUTES = ("/servicebus-pairs/", "/servicebus-pairs/api/snapshot", "/api/v2/connections?limit=100", "/api/v2/assets")
DAGS = ("canary_refused", "canary_good", "flights_pipeline")


def test_the_search_finds_what_is_there(tmp_path: Path):
    secret = "c4nary0123456789"
    for number in range(3):
        text = f"{'x' * number}{secret}/+= and more"
        (tmp_path / f"{number}.b64").write_bytes(base64.urlsafe_b64encode(text.encode()))
        (tmp_path / f"{number}.url").write_text(quote(text))
    (tmp_path / "clean").write_text(secret[:-1])

    assert found(tmp_path, {"s": secret}) == [
        f"s in {how}: {number}.{kind}" for number in range(3) for kind, how in (("b64", "base64"), ("url", "clear"))
    ]


@dataclass(frozen=True, slots=True)
class World:
    """A whole Airflow, and a signed-in client of it."""

    whole: Platform
    http: httpx.Client

    def answers(self, run: DagRun) -> Iterator[str]:
        """All that the API says of a run: states, rendered templates, logs, XComs, links."""
        base = f"/api/v2/dags/{run.dag_id}/dagRuns/{run.run_id}"
        yield self.text(base)
        for task in json.loads(self.text(f"{base}/taskInstances"))["task_instances"]:
            of_task = f"{base}/taskInstances/{task['task_id']}"
            for path in (
                "",
                f"/logs/{max(1, task['try_number'])}?full_content=true",
                "/xcomEntries",
                "/links",
                "/tries",
            ):
                yield self.text(of_task + path)

    def text(self, path: str) -> str:
        answer = self.http.get(path)
        assert answer.status_code == httpx.codes.OK, f"{path}: {answer.text}"
        return answer.text

    def test_of(self, extra: dict[str, Any]) -> tuple[bool, str]:
        """Press *Test* on a pair that is not saved."""
        body = {"connection_id": "unsaved", "conn_type": "servicebus_pair", "extra": json.dumps(extra)}
        answer = self.http.post("/api/v2/connections/test", json=body)
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.json()["status"], answer.json()["message"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("canary") / "home"


@pytest.fixture(scope="module")
def world(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A whole Airflow that keeps lineage and Spark's event log, with connections in its database."""
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
        "LOGGING__LOGGING_LEVEL": "DEBUG",  # as somebody sets it who looks for a mistake
        "OPENLINEAGE__TRANSPORT": json.dumps(transport),
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(spark))
        stack = Stack.lay(Home(root), dags=dags_in(tmp_path_factory.mktemp("dags")), options=options)
        stack.airflow.connections["official"] = official(stack.primary)
        events.mkdir(parents=True)
        try:
            whole = Platform(stack, stack.start())
            with httpx.Client(base_url=stack.airflow.url, timeout=60) as http:
                sign_in(http, stack)
                for each in connections(stack.primary, stack.secondary):
                    http.post("/api/v2/connections", json=each).raise_for_status()
                for dag_id in DAGS:
                    whole.api.wait_for_dag(dag_id, seconds=60)
                yield World(whole, http)
        finally:
            stack.processes.stop()


def dags_in(folder: Path) -> Path:
    """The pipeline of the examples and the DAGs of this test, in one folder."""
    for source in (
        PROJECT / "dags" / "flights_pipeline.py",
        PROJECT / "dags" / "local_spark.py",
        HERE / "dags" / "canary.py",
    ):
        (folder / source.name).symlink_to(source)
    (folder / "jobs").symlink_to(PROJECT / "dags" / "jobs")
    return folder


def sign_in(http: httpx.Client, stack: Stack) -> None:
    credentials = {"username": "admin", "password": stack.airflow.password}
    answer = http.post("/auth/token", json=credentials).raise_for_status()
    http.headers["Authorization"] = f"Bearer {answer.json()['access_token']}"


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(120)
def test_the_button_over_http_tells_a_good_pair_from_a_wrong_key_and_an_unreachable_host(world: World):
    primary, secondary = world.whole.stack.primary, world.whole.stack.secondary
    refused = primary.connection_string.replace(CANARIES["true"], CANARIES["key"])
    nowhere = {"secondary_connection_string": secondary.connection_string.replace(str(secondary.amqp_port), "1")}

    good = world.test_of(pair(primary, secondary))
    wrong = world.test_of(pair(primary, secondary, primary_connection_string=refused))
    unreachable = world.test_of(pair(primary, secondary, **nowhere))

    everything = "reach yes, authenticate yes, send yes, listen yes, manage yes"
    assert good[0], good[1]
    assert good[1].startswith(f"primary contoso: {everything}; secondary contoso-dr: reach yes, authenticate yes")
    assert not wrong[0]
    assert wrong[1].startswith("primary contoso: reach yes, authenticate no"), wrong[1]
    assert not unreachable[0]
    assert unreachable[1].startswith(f"primary contoso: {everything}; secondary contoso-dr: reach no ("), unreachable[1]
    for _, told in (good, wrong, unreachable):
        assert "Traceback" not in told
        assert not [name for name, canary in CANARIES.items() if canary in told]


@pytest.mark.slow
@pytest.mark.system
@pytest.mark.timeout(600)
def test_no_credential_appears_in_anything_that_airflow_writes_or_answers(world: World, root: Path):
    whole, api = world.whole, world.whole.api
    pipeline = api.trigger("flights_pipeline", conf={"month": 2, "rate": 20_000})
    refused = api.trigger("canary_refused", conf={})
    assert whole.wait_for_end(pipeline) == "success", api.tasks(pipeline)
    assert whole.wait_for_end(refused) == "failed"
    deferred = deferred_drain(whole)
    assert whole.wait_for_end(deferred) == "success"

    said = [text for run in (pipeline, refused, deferred) for text in world.answers(run)]
    said += [world.text(path) for path in ROUTES]
    (root / "answers.txt").write_text("\n".join(said))
    whole.stack.processes.stop()
    dump = root / "dump.sql"
    with dump.open("wb") as output:
        subprocess.run([*DUMP, str(root / "airflow" / "airflow.db")], stdout=output, check=True)

    assert failed(api_states(said)) >= {"send_key", "send_secret", "careless_official", "provision_key", "send_broken"}
    assert "c4nary" not in dump.read_text()
    assert 'INSERT INTO "asset_state_store"' in dump.read_text()
    assert "careless_signature" in dump.read_text()
    assert '"servicebusPair_routes"' in (root / "airflow" / "lineage.jsonl").read_text()
    assert list((root / "airflow" / "spark-events").iterdir()) != []
    # What a task prints and raises is masked in its log. Airflow 3.3 repeats the one on the scheduler's own output
    # (LocalExecutor) and OpenLineage the other in its event, both unmasked: who prints a secret is heard there.
    for repeated in (root / "logs" / "airflow-scheduler.log", root / "airflow" / "lineage.jsonl"):
        repeated.write_bytes(without_lines(repeated.read_bytes(), b"careless:"))
    assert found(root, CANARIES) == []


def deferred_drain(whole: Platform) -> DagRun:
    """A run whose drain waits in the triggerer through an outage."""
    served = whole.stack.primary.served
    fault = served.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR, entity="flights"))
    run = whole.api.trigger("canary_good", conf={})
    whole.wait_for_state(run, "drain", "deferred")
    served.clear_faults(fault)
    return run


def api_states(said: list[str]) -> dict[str, str]:
    """The state of each task that the API told of."""
    told = [json.loads(text) for text in said if text.startswith("{")]
    return {each["task_id"]: each["state"] for each in told if "task_id" in each and "state" in each}


def failed(states: dict[str, str]) -> set[str]:
    return {task_id for task_id, state in states.items() if state == "failed"}
