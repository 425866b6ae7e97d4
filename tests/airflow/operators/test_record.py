"""``ServiceBusPairRecordOperator``: shares the health of a publishing job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core.ledger.manifest import EntityManifest, PublishManifest
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.health_state import EntityHealth, HealthState
from servicebus_pair.operators.record import ServiceBusPairRecordOperator, read_manifest
from tests.airflow.conftest import CONN_ID, RunDag, events, run_task, shared_health
from tests.airflow.support.database import saved_activity

OUT = EntityHealth(HealthState.FAILED_OVER, since=2000.0, reason="connection refused", by="send")
BACK = EntityHealth(HealthState.HEALTHY, since=3000.0, reason="a ping was answered", by="ping")


def write_manifest(path: Path, **entities: EntityManifest) -> str:
    PublishManifest(run="r", entities=entities, bytes=1, seconds=1.0).write(path)
    return str(path)


@pytest.mark.usefixtures("fresh_state")
def test_health_is_shared_unless_newer_and_failovers_are_emitted(run_dag: RunDag, tmp_path: Path):
    def record(**entities: EntityManifest) -> Any:
        manifest = write_manifest(tmp_path / "manifest.json", **entities)
        return run_task(
            run_dag,
            lambda: ServiceBusPairRecordOperator(task_id="record", servicebus_pair_conn_id=CONN_ID, manifest=manifest),
        )["record"]

    first = record(flights=EntityManifest(10, 5, OUT), delays=EntityManifest(3, 0, EntityHealth()))
    second = record(flights=EntityManifest(10, 5, BACK))
    third = record(flights=EntityManifest(10, 5, OUT))

    assert first == {"primary": 13, "diverted": 5, "failed_over": ["flights"], "recorded": ["delays", "flights"]}
    assert second["recorded"] == ["flights"]
    assert third["recorded"] == []  # what it found is older than what is known
    assert shared_health("flights") == BACK
    announced = events("failover")
    assert [(extra["entity"], extra["reason"]) for extra in announced] == [
        ("flights", "connection refused"),
        ("flights", "5 messages were diverted in r"),
        ("flights", "connection refused"),
    ]


@pytest.mark.usefixtures("fresh_state")
def test_a_recovered_job_emits_both_events_and_records_sends_by_slot(run_dag: RunDag, tmp_path: Path):
    slots = {8: (10, 0), 9: (0, 5)}
    manifest = write_manifest(tmp_path / "manifest.json", flights=EntityManifest(10, 5, BACK, slots, 2750.0))

    run_task(
        run_dag,
        lambda: ServiceBusPairRecordOperator(task_id="record", servicebus_pair_conn_id=CONN_ID, manifest=manifest),
    )

    (began,) = events("failover")
    (ended,) = events("recovery")
    assert (began["since"], began["by"], ended["since"], ended["by"]) == (2750.0, "publish", 3000.0, "ping")
    saved = saved_activity()[-1]
    assert saved["operations"] == {"sends": 10, "diverts": 5}
    assert saved["entities"] == {"flights": [10, 5, 0]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist: the job that writes it must end first"),
        ("{", "cannot be read"),
        ("[]", "is list: it must be a JSON object"),
        ('{"version": 2}', "version is 2"),
        ("[" * 100_000, "nested too deeply"),
        ('{"version": 1, "entities": {"a": {}}}', "cannot be read"),
    ],
)
def test_invalid_manifests_are_refused_with_the_reason(tmp_path: Path, content: str | None, message: str):
    path = tmp_path / "manifest.json"
    if content is not None:
        path.write_text(content)

    with pytest.raises(ConfigurationError, match=message):
        read_manifest(path)
