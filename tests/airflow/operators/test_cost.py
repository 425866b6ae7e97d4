"""``ServiceBusPairCostOperator``: planned and measured costs."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path

import pytest

from tests.airflow.conftest import RunDag, run_task
from tests.airflow.support.tasks import cost


@pytest.mark.usefixtures("pair")
def test_an_idle_pair_costs_its_polls(run_dag: RunDag):
    """SPEC section 6: two queues polled every 15 minutes for 30 days are 5,760 receives."""
    report = run_task(run_dag, cost)["cost"]

    assert report["planned"] == {"operations": {"empty_receives": 5760}, "total": 5760, "billable": 0, "amount": "0.00"}
    assert report["measured"] is None
    assert report["prices"] == {"as_of": "2026-11-20", "currency": "USD"}


@pytest.mark.usefixtures("pair")
def test_the_report_adds_ledgers_and_meters_at_given_prices(
    run_dag: RunDag, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    """SPEC section 8: operations first, money second."""
    row = {"v": 1, "id": "m", "entity": "flights", "queue": None, "at": time.time() - 60, "run": "r"}
    rows = [
        {**row, "kind": "sent", "route": "primary", "bytes": 65_536},
        {**row, "kind": "sent", "route": "backlog", "bytes": 65_537},
        {**row, "kind": "syphoned", "route": "primary", "bytes": 65_537},
        {**row, "kind": "sent", "route": "primary", "bytes": 1, "at": time.time() - 3 * 86_400},
    ]
    (tmp_path / "a.jsonl").write_text("\n".join([*map(json.dumps, rows), '{"v": 1, "kind": "se']))
    prices = {"as_of": "2026-12-01", "currency": "EUR", "tiers": [{"beyond": 0, "per_million": "1000.00"}]}

    report = run_task(
        run_dag,
        lambda: cost(
            period=timedelta(days=1),
            ledger=str(tmp_path),
            operations=[{"pings": 2}, {"pings": 1, "sends": 1}],
            prices=prices,
            messages=1000,
            outage=3600,
        ),
    )["cost"]

    assert report["measured"]["operations"] == {
        "sends": 3,
        "diverts": 1,
        "pings": 3,
        "receives": 1,
        "settlements": 1,
        "further_increments": 3,
    }
    assert (report["measured"]["total"], report["measured"]["amount"]) == (12, "0.01")
    # 2 queues polled 96 times a day, 3,600 pings of one second, and 6 operations for each message.
    assert (report["planned"]["total"], report["planned"]["amount"]) == (192 + 3600 + 6000, "9.79")
    assert report["prices"] == {"as_of": "2026-12-01", "currency": "EUR"}
    log = capfd.readouterr().out
    assert "operations measured over 1 day" in log
    assert "ledger: 1 lines are not records" in log
