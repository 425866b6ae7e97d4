"""Each task needs exactly the rights that the security page lists."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from servicebus_emulator import EmulatorProcess
from servicebus_pair.operators.failover import ServiceBusPairFailbackOperator
from servicebus_pair.sensors.backlog import ServiceBusBacklogSensor
from servicebus_pair.sensors.servicebus_pair import ServiceBusPrimaryHealthSensor
from servicebus_pair.triggers.backlog import BacklogTrigger
from tests.airflow.conftest import BACKLOG, CONN_ID, PROJECT, RunDag, connection_extra, define_connection, run_task
from tests.airflow.support import tasks
from tests.airflow.support.queues import send_directly
from tests.airflow.support.shared_access_keys import connection_string_of, keyed_namespaces

ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (PROJECT / "provider" / "docs" / "security.md").read_text().splitlines()
    if line.startswith("|")
]
RULES = {"Send": "sender", "Listen": "listener", "Send, Listen": "worker", "Manage": "manager"}


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmulatorProcess]:
    with keyed_namespaces(tmp_path_factory.mktemp("rights")) as process:
        yield process


def wait(**parameters: Any) -> ServiceBusPrimaryHealthSensor:
    return ServiceBusPrimaryHealthSensor(task_id="wait", servicebus_pair_conn_id=CONN_ID, **parameters)


def fail_back() -> ServiceBusPairFailbackOperator:
    return ServiceBusPairFailbackOperator(
        task_id="back", servicebus_pair_conn_id=CONN_ID, entities="flights", reason="a test"
    )


NAMED = {"entities": ["flights"]}
TASKS: dict[str, list[Callable[[], object]]] = {
    "send (operators, decorator, library), fail over and back by hand": [
        lambda: tasks.send(task_id="to_primary"),
        tasks.fail_over,
        lambda: tasks.send(task_id="to_backlog"),
        fail_back,
    ],
    "wait for entities that are named": [lambda: wait(**NAMED)],
    "drain of entities that are named": [lambda: tasks.drain(**NAMED)],
    "wait or drain without naming entities": [wait, tasks.drain],
    "backlog sensor, watcher, page, provision, cleanup": [
        lambda: ServiceBusBacklogSensor(task_id="drained", servicebus_pair_conn_id=CONN_ID, messages=1_000),
        tasks.provision,
        tasks.cleanup,
    ],
    "drill": [lambda: tasks.drill(messages=10)],
}


@pytest.mark.parametrize("row", [row for row in ROWS if row[0] in TASKS], ids=lambda row: row[0])
@pytest.mark.usefixtures("fresh_state")
def test_tasks_work_with_the_documented_rights(
    keyed: EmulatorProcess, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, row: list[str]
):
    rights = dict(zip(("primary", "secondary"), row[1:], strict=True))
    # A namespace for which the page names no right gets a key that does not exist.
    known = {
        name: value
        for side, right in rights.items()
        for name, value in connection_string_of(keyed, side, RULES.get(right, "unknown")).items()
    }
    extra = {**connection_extra(keyed["contoso"], keyed["contoso-dr"]), **known}
    define_connection(monkeypatch, extra)

    ran = run_task(run_dag, *TASKS[row[0]])

    # As the cost page states.
    assert sum(ran.get("drill", {}).get("operations", {}).values()) < 100


def test_the_page_has_a_row_for_each_task():
    assert {row[0] for row in ROWS} >= set(TASKS)


@pytest.mark.usefixtures("fresh_state")
async def test_a_watcher_needs_listen_and_manage(keyed: EmulatorProcess, monkeypatch: pytest.MonkeyPatch):
    extra = {
        **connection_extra(keyed["contoso"], keyed["contoso-dr"]),
        **connection_string_of(keyed, "primary", "unknown"),
        **connection_string_of(keyed, "secondary", "manager"),
    }
    define_connection(monkeypatch, extra)
    trigger = BacklogTrigger(servicebus_pair_conn_id=CONN_ID, interval=1).run()

    send_directly(keyed["contoso-dr"], BACKLOG[0], **{"x-ms-path": "flights"})

    event = await asyncio.wait_for(anext(trigger), 60)
    assert event.payload["entities"] == ["flights"]
