from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from servicebus_pair.ui.sources.event_queries import AUDIT_LOG_EVENT, read_action_log


def test_action_log_keeps_actions_of_deleted_runs_and_ignores_invalid_entries(airflow_db: Path):  # noqa: ARG001
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    extra = {"conn_id": "logged_pair", "action": "drill", "reason": "planned test"}
    with create_session() as session:
        session.add(Log(event=AUDIT_LOG_EVENT, owner="anna", extra=json.dumps(extra), dag_id="deleted", run_id="r1"))
        for invalid in ("{", "[]", json.dumps({"conn_id": 7})):
            session.add(Log(event=AUDIT_LOG_EVENT, owner="anna", extra=invalid))
    with create_session() as session:
        records = read_action_log(session, since=datetime.now(UTC) - timedelta(minutes=1))

    (record,) = records["logged_pair"]
    assert (record.user, record.extra) == ("anna", extra)
    assert record.run is not None
    assert (record.run.run_id, record.run.state) == ("r1", "deleted")
    assert 7 not in records
