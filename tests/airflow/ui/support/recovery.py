"""A recovery that a failover event triggered, and the report that its reconcile job wrote."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from servicebus_pair.airflow_runtime.run_folder import run_folder
from tests.airflow.conftest import CONN_ID, RunDag


def run_recovery(run_dag: RunDag, result: Mapping[str, Any]) -> str:
    """Run the DAG ``flights_recovery``, triggered by a failover event, whose task returns ``result``; the run id."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.models.dagrun import DagRun
    from airflow.sdk import DAG, task
    from airflow.utils.session import create_session
    from sqlalchemy import select

    from servicebus_pair.assets import failover_asset

    @task(task_id="report")
    def return_report() -> dict[str, Any]:
        return dict(result)

    with DAG("flights_recovery", schedule=failover_asset(CONN_ID)) as dag:
        return_report()
    run = run_dag(dag)
    with create_session() as session:
        asset = session.scalars(select(AssetModel).where(AssetModel.name == failover_asset(CONN_ID).name)).one()
        event = AssetEvent(asset_id=asset.id, extra={"entity": "flights", "reason": "Unreachable", "by": "send"})
        event.created_dagruns.append(session.scalars(select(DagRun).where(DagRun.id == run.id)).one())
        session.add(event)
    return str(run.run_id)


def write_report(root: Path, dag_id: str, run_id: str, html: str, *, lost: int, verdict: str = "proven") -> Path:
    """Write what the reconcile job writes, and return its folder."""
    folder = root / dag_id / run_folder(run_id) / "reconcile"
    folder.mkdir(parents=True)
    (folder / "report.html").write_text(html)
    (folder / "summary.json").write_text(json.dumps({"judgement": verdict, "totals": {"lost": lost}}))
    return folder
