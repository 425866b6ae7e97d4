"""The page about security tells the rights that each task needs: here each has just these."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from servicebus_pair.operators.cleanup import ServiceBusPairCleanupOperator
from servicebus_pair.operators.drill import ServiceBusPairDrillOperator
from servicebus_pair.operators.failover import ServiceBusPairFailbackOperator, ServiceBusPairFailoverOperator
from servicebus_pair.operators.provision import ServiceBusPairProvisionOperator
from servicebus_pair.operators.send import ServiceBusPairSendOperator
from servicebus_pair.operators.syphon import ServiceBusPairSyphonOperator
from servicebus_pair.sensors.backlog import ServiceBusBacklogSensor
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from servicebus_pair.triggers.backlog import BacklogTrigger
from tests.airflow.conftest import CONN_ID, PROJECT, RunDag, run_task
from tests.airflow.keyed import extra_of, keyed_namespaces, known_by

if TYPE_CHECKING:
    from servicebus_emulator import EmulatorProcess

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (PROJECT / "provider" / "docs" / "security.md").read_text().splitlines()
    if line.startswith("|")
]
RULES = {"Send": "sender", "Listen": "listener", "Send, Listen": "worker", "Manage": "manager"}
COMMON: dict[str, Any] = {"conn_id": CONN_ID}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorProcess]:
    with keyed_namespaces(tmp_path_factory.mktemp("rights")) as process:
        yield process


def by_hand(task_id: str, kind: type[Any]) -> Callable[[], object]:
    return lambda: kind(task_id=task_id, entities="flights", reason="a test", **COMMON)


def send(task_id: str) -> Callable[[], object]:
    return lambda: ServiceBusPairSendOperator(task_id=task_id, entity="flights", messages=["a"], **COMMON)


def drain(**parameters: Any) -> Callable[[], object]:
    return lambda: ServiceBusPairSyphonOperator(task_id="drain", **parameters, **COMMON)


def wait(**parameters: Any) -> Callable[[], object]:
    return lambda: ServiceBusPrimaryHealthSensor(task_id="wait", **parameters, **COMMON)


NAMED = {"entities": ["flights"]}
TASKS: dict[str, list[Callable[[], object]]] = {
    "send (operators, decorator, library), fail over and back by hand": [
        send("to_primary"),
        by_hand("over", ServiceBusPairFailoverOperator),
        send("to_backlog"),
        by_hand("back", ServiceBusPairFailbackOperator),
    ],
    "wait for entities that are named": [wait(**NAMED)],
    "drain of entities that are named": [drain(**NAMED)],
    "wait or drain without naming entities": [wait(), drain()],
    "backlog sensor, watcher, page, provision, cleanup": [
        lambda: ServiceBusBacklogSensor(task_id="drained", messages=1_000, **COMMON),
        lambda: ServiceBusPairProvisionOperator(task_id="provision", **COMMON),
        lambda: ServiceBusPairCleanupOperator(task_id="cleanup", **COMMON),
    ],
    "drill": [lambda: ServiceBusPairDrillOperator(task_id="drill", entity="flights", messages=10, **COMMON)],
}


@pytest.mark.parametrize("row", [row for row in ROWS if row[0] in TASKS], ids=lambda row: row[0])
@pytest.mark.usefixtures("fresh_state")
def test_a_task_needs_no_other_rights_than_the_page_says(
    both: EmulatorProcess, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, row: list[str]
):
    rights = dict(zip(("primary", "secondary"), row[1:], strict=True))
    # A namespace for which the page names no right is known by a key that nobody made.
    known = {
        name: value
        for side, right in rights.items()
        for name, value in known_by(both, side, RULES.get(right, "nobody")).items()
    }
    extra = {**extra_of(both), **known}
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps({"conn_type": "servicebus_pair", "extra": extra}))

    ran = run_task(run_dag, *TASKS[row[0]])

    # The page about costs says so.
    assert sum(ran.get("drill", {}).get("operations", {}).values()) < 100


def test_the_page_has_a_row_for_each_task_that_is_tried():
    assert {row[0] for row in ROWS} >= set(TASKS)


@pytest.mark.usefixtures("fresh_state")
async def test_a_watcher_needs_to_listen_and_to_manage(both: EmulatorProcess, monkeypatch: pytest.MonkeyPatch):
    extra = {**extra_of(both), **known_by(both, "primary", "nobody"), **known_by(both, "secondary", "manager")}
    monkeypatch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", json.dumps({"conn_type": "servicebus_pair", "extra": extra}))
    trigger = BacklogTrigger(conn_id=CONN_ID, interval=1).run()

    from azure.servicebus import ServiceBusClient, ServiceBusMessage

    with (
        ServiceBusClient.from_connection_string(both["contoso-dr"].connection_string) as client,
        client.get_queue_sender("contoso/x-servicebus-transfer/0") as sender,
    ):
        sender.send_messages(ServiceBusMessage("a", application_properties={"x-ms-path": "flights"}))

    event = await asyncio.wait_for(anext(trigger), 60)
    assert event.payload["entities"] == ["flights"]
