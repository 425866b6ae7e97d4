"""Provision, send and syphon operators against embedded namespaces, in Airflow's own test run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from tests.airflow.conftest import CONN_ID, Pair, RestartSoon, RunDag, events, run_task
from tests.airflow.queues import contents, queue_names

MESSAGES = [
    "plain",
    {
        "body": "with everything",
        "message_id": "m-1",
        "session_id": "N1",
        "subject": "late",
        "content_type": "text/plain",
        "correlation_id": "c-1",
        "time_to_live": 3600,
        "application_properties": {"delay": 12, "carrier": "UA"},
    },
]


def provision() -> ServiceBusPairProvisionOperator:
    return ServiceBusPairProvisionOperator(task_id="provision", conn_id=CONN_ID)


def send() -> ServiceBusPairSendOperator:
    return ServiceBusPairSendOperator(task_id="send", conn_id=CONN_ID, entity="flights", messages=MESSAGES)


def drain() -> ServiceBusPairSyphonOperator:
    return ServiceBusPairSyphonOperator(task_id="drain", conn_id=CONN_ID, deferrable=True)


def test_provisioning_creates_the_backlog_queues_once(pair: Pair, run_dag: RunDag):
    """SPEC section 3."""
    first = run_task(run_dag, provision)["provision"]
    second = run_task(run_dag, provision)["provision"]

    assert first == {"found": 0, "missing": 2, "created": 2, "drifted": 0, "extra": 0, "failed": 0}
    assert second == {"found": 2, "missing": 0, "created": 0, "drifted": 0, "extra": 0, "failed": 0}
    assert queue_names(pair.secondary["contoso-dr"]) == [
        "contoso/x-servicebus-transfer/0",
        "contoso/x-servicebus-transfer/1",
    ]


def test_a_send_arrives_with_all_its_properties(pair: Pair, run_dag: RunDag):
    result = run_task(run_dag, send)["send"]

    plain, full = contents(pair.primary["contoso"], "flights")
    assert result == {
        "entity": "flights",
        "sent": 2,
        "primary": 2,
        "diverted": 0,
        "backlog_queues": [],
        "operations": {"sends": 2},
    }
    assert (plain.body, plain.session_id) == ("plain", None)
    assert (full.body, full.message_id, full.session_id, full.subject) == ("with everything", "m-1", "N1", "late")
    assert (full.content_type, full.correlation_id, full.time_to_live) == ("text/plain", "c-1", 3600)
    assert full.properties == {"delay": 12, "carrier": "UA"}


@pytest.mark.apart
def test_an_outage_diverts_is_announced_and_is_drained_when_the_primary_is_back(
    pair: Pair, run_dag: RunDag, tmp_path: Path
):
    """SPEC sections 4 and 6: what a task finds out reaches other tasks, and becomes asset events."""
    ledger = tmp_path / "ledger"
    run_task(run_dag, provision)
    pair.primary.kill()

    sent = run_task(
        run_dag,
        lambda: ServiceBusPairSendOperator(
            task_id="send", conn_id=CONN_ID, entity="flights", messages=MESSAGES, ledger=str(ledger)
        ),
    )["send"]
    pair.primary.start()
    drained = run_task(
        run_dag,
        lambda: ServiceBusPairSyphonOperator(task_id="drain", conn_id=CONN_ID, ledger=str(ledger)),
    )["drain"]

    assert (sent["primary"], sent["diverted"]) == (0, 2)
    assert drained == {"moved": {"flights": 2}, "dead_lettered": {}, "left": 0, "duplicates_possible": 0}
    assert sorted(message.body for message in contents(pair.primary["contoso"], "flights")) == [
        "plain",
        "with everything",
    ]
    assert [extra["entity"] for extra in events(f"servicebus_pair.{CONN_ID}.failover")] == ["flights"]
    assert [extra["entity"] for extra in events(f"servicebus_pair.{CONN_ID}.recovery")] == ["flights"]
    lines = [json.loads(line) for file in ledger.iterdir() for line in file.read_text().splitlines()]
    assert (
        sorted((line["kind"], line["route"]) for line in lines)
        == [("sent", "backlog")] * 2 + [("syphoned", "primary")] * 2
    )


@pytest.mark.apart
def test_a_second_task_knows_of_the_outage_and_announces_nothing(pair: Pair, run_dag: RunDag):
    """Health is decided in memory and shared through the asset state store."""
    run_task(run_dag, provision)
    pair.primary.kill()
    run_task(run_dag, send)

    again = run_task(run_dag, send)["send"]

    assert again["diverted"] == 2
    assert len(events(f"servicebus_pair.{CONN_ID}.failover")) == 1


@pytest.mark.apart
def test_a_drain_waits_in_a_trigger_while_the_primary_is_down(pair: Pair, run_dag: RunDag, restart_soon: RestartSoon):
    run_task(run_dag, provision)
    pair.primary.kill()
    run_task(run_dag, send)
    restart_soon(pair.primary)

    drained = run_task(run_dag, drain)["drain"]

    assert drained["moved"] == {"flights": 2}
    assert [extra["entity"] for extra in events(f"servicebus_pair.{CONN_ID}.recovery")] == ["flights"]


def test_a_retry_sends_the_same_message_ids(pair: Pair, run_dag: RunDag):
    """At least once with stable ids: the id depends on the task instance and the place in the list."""
    run_task(run_dag, send)
    run_task(run_dag, send)

    ids = [message.message_id for message in contents(pair.primary["contoso"], "flights")]
    assert len(set(ids)) == 3  # "m-1" twice, and one id for each run


@pytest.mark.parametrize("conn_id", ["{{ params.conn }}", "", "a.b"])
def test_a_connection_id_that_cannot_name_assets_is_refused_when_the_dag_is_parsed(conn_id: str):
    with pytest.raises(ConfigurationError, match="conn_id is"):
        ServiceBusPairProvisionOperator(task_id="provision", conn_id=conn_id)
