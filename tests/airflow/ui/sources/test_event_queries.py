from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from servicebus_pair.ui.sources.event_queries import AUDIT_LOG_EVENT, read_action_log, read_events


def test_action_log_keeps_actions_of_deleted_runs_and_ignores_invalid_entries(airflow_db: Path):  # noqa: ARG001
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    extra = {"conn_id": "logged_pair", "action": "drill", "reason": "planned test"}
    with create_session() as session:
        session.add(Log(event=AUDIT_LOG_EVENT, owner="anna", extra=json.dumps(extra), dag_id="deleted", run_id="r1"))
        for invalid in ("{", "[]", json.dumps({"conn_id": 7})):
            session.add(Log(event=AUDIT_LOG_EVENT, owner="anna", extra=invalid))
    with create_session() as session:
        records = read_action_log(session, [], since=datetime.now(UTC) - timedelta(minutes=1))

    (record,) = records["logged_pair"]
    assert (record.user, record.extra) == ("anna", extra)
    assert record.run is not None
    assert (record.run.run_id, record.run.state) == ("r1", "deleted")
    assert 7 not in records


def test_actions_on_one_pair_crowd_out_no_other(airflow_db: Path):  # noqa: ARG001
    from airflow.models.log import Log
    from airflow.utils.session import create_session

    now = datetime.now(UTC)
    quiet, loud, similar = "quiet_pair", "loud_pair", "quiet-pair"
    actions = [(quiet, 3600), *((loud, number) for number in range(300)), *((similar, number) for number in range(300))]
    with create_session() as session:
        for conn_id, age in actions:
            extra = json.dumps({"conn_id": conn_id, "action": "drill", "reason": quiet})
            session.add(Log(event=AUDIT_LOG_EVENT, owner="a", extra=extra, dttm=now - timedelta(seconds=age)))
        session.flush()
        log = read_action_log(session, [quiet, loud, similar], since=now - timedelta(days=1))
        session.rollback()

    assert len(log[quiet]) == 1
    assert sum(map(len, log.values())) <= 200
    assert [each.at for each in log[loud]] == sorted((each.at for each in log[loud]), reverse=True)


def test_events_of_one_pair_crowd_out_no_other_and_large_ones_are_not_read(airflow_db: Path):  # noqa: ARG001
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    from servicebus_pair.assets import failover_asset

    now = datetime.now(UTC)
    with create_session() as session:
        for name in ("quiet_pair", "loud_pair"):
            asset = failover_asset(name)
            session.add(AssetModel(name=asset.name, uri=asset.uri, group="asset", extra={}))
        # SQLite finds it among those of the pair.
        shouted = f"{failover_asset('quiet_pair').name.removesuffix('failover')}FAILOVER"
        session.add(AssetModel(name=shouted, uri="shouted", group="asset", extra={}))
        session.flush()
        ids = {each.name: each.id for each in session.query(AssetModel)}
        quiet, loud = (ids[failover_asset(name).name] for name in ("quiet_pair", "loud_pair"))
        session.add(AssetEvent(asset_id=quiet, extra={"entity": "flights"}, timestamp=now - timedelta(days=2)))
        session.add(AssetEvent(asset_id=quiet, extra={"entity": "x" * 70_000}, timestamp=now))
        session.add(AssetEvent(asset_id=ids[shouted], extra={}, timestamp=now))
        for number in range(1100):
            session.add(AssetEvent(asset_id=loud, extra={}, timestamp=now - timedelta(seconds=number)))
    try:
        with create_session() as session:
            events = read_events(session, since=now - timedelta(days=30))
    finally:
        with create_session() as session:
            for asset_id in (quiet, loud, ids[shouted]):
                session.query(AssetEvent).filter_by(asset_id=asset_id).delete()
                session.query(AssetModel).filter_by(id=asset_id).delete()

    assert [event.extra for event in events["quiet_pair"]] == [{"entity": "flights"}]
    assert sum(map(len, events.values())) == 999, "with those of other tests, and without that of another name"
    assert [event.at for event in events["loud_pair"]] == sorted((e.at for e in events["loud_pair"]), reverse=True)
