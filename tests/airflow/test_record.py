"""Recording what a publishing job found out."""

from __future__ import annotations

from pathlib import Path

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.health import EntityHealth, State
from servicebus_pair.core.manifest import EntityManifest, PublishManifest
from servicebus_pair.operators.record import ServiceBusPairRecordOperator, read_manifest
from tests.airflow.conftest import CONN_ID, RunDag, events, run_task, shared_health
from tests.airflow.test_notes import kept

OUT = EntityHealth(State.FAILED_OVER, since=2000.0, reason="connection refused", by="send")
BACK = EntityHealth(State.HEALTHY, since=3000.0, reason="a ping was answered", by="ping")


def write(path: Path, **entities: EntityManifest) -> str:
    PublishManifest(run="r", entities=entities, bytes=1, seconds=1.0).write(path)
    return str(path)


@pytest.mark.usefixtures("fresh_state")
def test_health_is_shared_and_failovers_are_announced_and_newer_knowledge_stays(run_dag: RunDag, tmp_path: Path):
    def record(**entities: EntityManifest) -> dict[str, object]:
        manifest = write(tmp_path / "manifest.json", **entities)
        return run_task(
            run_dag, lambda: ServiceBusPairRecordOperator(task_id="record", conn_id=CONN_ID, manifest=manifest)
        )["record"]

    first = record(flights=EntityManifest(10, 5, OUT), delays=EntityManifest(3, 0, EntityHealth()))
    second = record(flights=EntityManifest(10, 5, BACK))
    third = record(flights=EntityManifest(10, 5, OUT))

    assert first == {"primary": 13, "diverted": 5, "failed_over": ["flights"], "recorded": ["delays", "flights"]}
    assert second["recorded"] == ["flights"]
    assert third["recorded"] == []  # what it found is older than what is known
    assert shared_health("flights") == BACK
    announced = events(f"servicebus_pair.{CONN_ID}.failover")
    assert [(extra["entity"], extra["reason"]) for extra in announced] == [
        ("flights", "connection refused"),
        ("flights", "5 messages were diverted in r"),
        ("flights", "connection refused"),
    ]


@pytest.mark.usefixtures("fresh_state")
def test_a_job_that_saw_the_recovery_too_tells_of_both_and_of_when_it_sent_what(run_dag: RunDag, tmp_path: Path):
    slots = {8: (10, 0), 9: (0, 5)}
    manifest = write(tmp_path / "manifest.json", flights=EntityManifest(10, 5, BACK, slots, 2750.0))

    run_task(run_dag, lambda: ServiceBusPairRecordOperator(task_id="record", conn_id=CONN_ID, manifest=manifest))

    (began,) = events(f"servicebus_pair.{CONN_ID}.failover")
    (ended,) = events(f"servicebus_pair.{CONN_ID}.recovery")
    assert (began["since"], began["by"], ended["since"], ended["by"]) == (2750.0, "publish", 3000.0, "ping")
    noted = kept()[-1]
    assert noted["operations"] == {"sends": 10, "diverts": 5}
    assert noted["entities"] == {"flights": [10, 5]}


@pytest.mark.usefixtures("fresh_state")
def test_the_event_of_a_failover_is_one_line_for_operators_wherever_it_came_from(
    run_dag: RunDag, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    manifest = write(tmp_path / "manifest.json", flights=EntityManifest(10, 5, OUT))

    run_task(run_dag, lambda: ServiceBusPairRecordOperator(task_id="record", conn_id=CONN_ID, manifest=manifest))

    [line] = [record.getMessage() for record in caplog.records if record.name == "servicebus_pair.ui.listener"]
    assert line.startswith(
        "failover conn_id=contoso_pair entity=flights by=send since=2000.0 reason=connection refused"
    )
    assert "dag_id=tasks run_id=manual__" in line


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (None, "does not exist: the job that writes it must end first"),
        ("{", "cannot be read"),
        ("[]", "is list: it must be a JSON object"),
        ('{"version": 2}', "version is 2"),
        ('{"version": 1, "entities": {"a": {}}}', "cannot be read"),
    ],
)
def test_a_manifest_that_cannot_be_read_is_an_error_that_says_why(tmp_path: Path, content: str | None, told: str):
    path = tmp_path / "manifest.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigurationError, match=told):
        read_manifest(path)
