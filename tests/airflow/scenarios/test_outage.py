"""Provision, send, divert and drain with Airflow's own test run."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from tests.airflow.conftest import Pair, RunDag, events, run_task
from tests.airflow.support.queues import contents
from tests.airflow.support.tasks import drain, provision, send


def test_a_send_arrives_with_all_its_properties(pair: Pair, run_dag: RunDag):
    result = run_task(run_dag, send)["send"]

    plain, full = contents(pair.primary["contoso"], "flights")
    assert result == {
        "entity": "flights",
        "sent": 2,
        "primary": 2,
        "diverted": 0,
        "spooled": 0,
        "backlog_queues": [],
        "operations": {"sends": 2},
    }
    assert (plain.body, plain.session_id) == ("plain", None)
    assert (full.body, full.message_id, full.session_id, full.subject) == ("with everything", "m-1", "N1", "late")
    assert (full.content_type, full.correlation_id, full.time_to_live) == ("text/plain", "c-1", 3600)
    assert full.properties == {"delay": 12, "carrier": "UA"}


def test_an_outage_diverts_emits_one_failover_and_is_drained_afterwards(pair: Pair, run_dag: RunDag, tmp_path: Path):
    """SPEC sections 4 and 6."""
    ledger = tmp_path / "ledger"
    run_task(run_dag, provision)
    pair.primary.kill()

    sent = run_task(run_dag, lambda: send(ledger=str(ledger)))["send"]
    again = run_task(run_dag, send)["send"]
    pair.primary.start()
    drained = run_task(run_dag, lambda: drain(ledger=str(ledger)))["drain"]

    assert [(each["primary"], each["diverted"]) for each in (sent, again)] == [(0, 2)] * 2
    assert drained == {
        "moved": {"flights": 4},
        "dead_lettered": {},
        "left": 0,
        "duplicates_possible": 0,
        "unspooled": {},
    }
    bodies = sorted(message.body for message in contents(pair.primary["contoso"], "flights"))
    assert bodies == ["plain"] * 2 + ["with everything"] * 2
    # The second task reads the failover from the asset state store.
    assert [extra["entity"] for extra in events("failover")] == ["flights"]
    assert [extra["entity"] for extra in events("recovery")] == ["flights"]
    lines = [json.loads(line) for file in ledger.rglob("*.jsonl") for line in file.read_text().splitlines()]
    routes = Counter((line["kind"], line.get("route")) for line in lines)
    assert routes == {("sent", "backlog"): 2, ("syphoned", "primary"): 4, ("closed", None): 2}
