from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.airflow_runtime.airflow_version import stats
from servicebus_pair.ui.listener import on_asset_event_emitted


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("servicebus_pair.contoso_pair.failover", ["servicebus_pair.failovers"]),
        ("servicebus_pair.contoso_pair.recovery", ["servicebus_pair.recoveries"]),
        ("servicebus_pair.contoso_pair.backlog", []),
        ("other.contoso_pair.failover", []),
    ],
)
def test_failover_and_recovery_are_logged_and_counted(
    name: str, metrics: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    counted: list[str] = []
    monkeypatch.setattr(stats, "incr", lambda metric, **_: counted.append(metric))
    event: Any = SimpleNamespace(
        asset=SimpleNamespace(name=name),
        extra={"entity": "flights", "by": "send", "since": 2000.0, "reason": "connection refused"},
        source_dag_id="tasks",
        source_run_id="manual__1",
    )

    with caplog.at_level("INFO"):
        on_asset_event_emitted(event)

    assert counted == metrics
    lines = [record.getMessage() for record in caplog.records if record.name == "servicebus_pair.ui.listener"]
    assert lines == [
        f"{name.rpartition('.')[2]} conn_id='contoso_pair' entity='flights' by='send' since=2000.0 "
        "reason='connection refused' dag_id=tasks run_id='manual__1'"
        for _ in metrics
    ]
