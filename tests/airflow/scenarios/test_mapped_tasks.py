"""Mapped tasks share health and announce failovers in a DAG that holds nothing but mapped tasks."""

from __future__ import annotations

import time

import pytest

from tests.airflow.conftest import CONN_ID, Pair, RunDag, events, run_task, shared_health, states
from tests.airflow.support.queues import contents
from tests.airflow.support.tasks import provision

INTERVAL = 4.0


def test_three_mapped_sends_wait_one_interval_and_announce_one_failover(
    pair: Pair, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    """SPEC section 4: health is shared by all senders of the pair."""
    from airflow.sdk import DAG, task

    from tests.airflow.conftest import define_connection

    pair.settings |= {"failover_interval": INTERVAL, "ping_primary_interval": 60}
    define_connection(monkeypatch, pair.extra())
    run_task(run_dag, provision)
    forget_asset()
    pair.primary.kill()

    with DAG("only_mapped", schedule=None) as dag:

        @task.servicebus_send(task_id="send", servicebus_pair_conn_id=CONN_ID, entity="flights")
        def send(text: str) -> list[str]:
            return [text]

        send.expand(text=["a", "b", "c"])
    started = time.monotonic()
    run = run_dag(dag)
    seconds = time.monotonic() - started

    assert set(states(run).values()) == {"success"}
    assert len(run.get_task_instances()) == 3
    assert seconds >= INTERVAL
    # The others read that the entity is failed over; the time of all three depends on the load of the machine.
    assert caplog.text.count("health=suspect before=healthy") == 1
    assert [extra["entity"] for extra in events("failover")] == ["flights"]
    assert shared_health("flights").failed_over
    backlog = [each.body for queue in range(2) for each in contents(pair.secondary["contoso-dr"], backlog_queue(queue))]
    assert sorted(backlog) == ["a", "b", "c"]


def backlog_queue(index: int) -> str:
    return f"contoso/x-servicebus-transfer/{index}"


def forget_asset() -> None:
    """Deactivate the assets of the pair, as if no other DAG had ever used it."""
    from airflow.models.asset import AssetActive
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    with create_session() as session:
        session.execute(delete(AssetActive))
