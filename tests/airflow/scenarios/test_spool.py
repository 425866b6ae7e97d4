"""What neither namespace took goes home by the same tasks as a backlog (SPEC section 10)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import task

from servicebus_pair.core.model.interfaces import SystemClock
from servicebus_pair.core.model.options import PairOptions
from servicebus_pair.core.protocol.amqp_message import new_message
from servicebus_pair.core.spool.spool import open_spool
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.operators.drill import ServiceBusPairDrillOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from tests.airflow.conftest import CONN_ID, Pair, RunDag, define_connection, run_task
from tests.airflow.support.queues import contents
from tests.airflow.support.tasks import backlog_sensor, drain, provision, send


def decorated_send(spool: str) -> Any:
    @task.servicebus_send(task_id="decorated", servicebus_pair_conn_id=CONN_ID, entity="flights", spool=spool)
    def messages() -> list[str]:
        return ["from a function"]

    return messages()


def sightings() -> dict[str, int]:
    """The numbers of messages in the spools of all machines, as tasks have shared them."""
    from airflow.utils.session import create_session

    from servicebus_pair.ui.sources.stored_state import read_states

    with create_session() as session:
        return {name: each["messages"] for name, each in read_states(session)[CONN_ID]["spools"].items()}


def test_a_send_task_may_name_a_spool_and_a_syphon_task_empties_it(
    pair: Pair, run_dag: RunDag, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    spool = tmp_path / "spool" / "tasks"
    pair.primary.kill()
    pair.secondary.kill()

    sent = run_task(
        run_dag,
        lambda: send(spool=f"{spool.parent}/{{{{ dag.dag_id }}}}"),
        lambda: decorated_send(f"{spool.parent}/{{{{ dag.dag_id }}}}"),
    )

    assert {name: (each["sent"], each["spooled"]) for name, each in sent.items()} == {
        "send": (2, 2),
        "decorated": (1, 1),
    }
    assert [each.name for each in spool.parent.iterdir()] == ["tasks"]
    name = (spool / "name").read_text().strip()
    assert sightings() == {name: 3}
    # From here on the folder is that of another machine, and the first one is out of sight.
    (spool / "name").write_text("another machine")
    pair.primary.start()
    pair.secondary.start()
    assert ServiceBusPairHook(CONN_ID, spool=str(spool)).filled_backlog_queues() == ("spool",)
    drained = run_task(run_dag, lambda: drain(spool=spool, queues="spool"))["drain"]
    assert (drained["unspooled"], drained["left"]) == ({"flights": 3}, 0)
    bodies = [message.body for message in contents(pair.primary["contoso"], "flights")]
    assert bodies == ["plain", "with everything", "from a function"]
    assert (
        f"spool {name} held 3 messages when a task last looked, and cannot be seen from here" in capfd.readouterr().out
    )
    assert sightings() == {name: 3}
    (spool / "name").write_text(name)
    write(spool, "later")
    run_task(run_dag, lambda: drain(spool=spool, queues="spool"))
    assert sightings() == {}


def write(folder: Path, *bodies: str) -> None:
    spool = open_spool(PairOptions(spool=str(folder)), clock=SystemClock())
    assert spool is not None
    asyncio.run(spool.write("flights", [new_message(body) for body in bodies]))


def test_sensor_recovery_and_drill_know_the_spool(
    pair: Pair, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    pair.settings |= {"spool": str(tmp_path)}
    define_connection(monkeypatch, pair.extra())
    run_task(run_dag, provision)
    hook = ServiceBusPairHook(CONN_ID)
    assert hook.filled_backlog_queues() == ()
    write(tmp_path, "a", "b")
    assert hook.filled_backlog_queues() == ("spool",)

    found = run_task(
        run_dag,
        lambda: backlog_sensor(task_id="filled", until="filled", messages=2),
        lambda: ServiceBusPairSyphonOperator(task_id="plan", servicebus_pair_conn_id=CONN_ID, plan_only=True),
        lambda: ServiceBusPairSyphonOperator(task_id="drain", servicebus_pair_conn_id=CONN_ID, queues="spool"),
        lambda: backlog_sensor(task_id="drained"),
        lambda: ServiceBusPairDrillOperator(
            task_id="drill", servicebus_pair_conn_id=CONN_ID, entity="flights", messages=3, both=True
        ),
    )

    assert (found["filled"]["spooled"], found["filled"]["messages"]) == (2, 0)
    assert found["plan"]["spooled"] == {"flights": 2}
    assert (found["drain"]["unspooled"], found["drain"]["moved"], found["drain"]["left"]) == ({"flights": 2}, {}, 0)
    assert found["drained"]["spooled"] == 0
    assert (found["drill"]["passed"], found["drill"]["arrived"]) == (True, 3)
    assert hook.filled_backlog_queues() == ()
