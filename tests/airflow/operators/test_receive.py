"""``ServiceBusReceiveOperator``, ``@task.servicebus_receive`` and ``ServiceBusMessageSensor``."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators._support.received_messages import ReceivedMessages
from servicebus_pair.operators.receive import ServiceBusReceiveOperator
from servicebus_pair.sensors.message import ServiceBusMessageSensor
from tests.airflow.conftest import CONN_ID, LogOfFailure, Pair, RestartSoon, RunDag, results, run_task, states
from tests.airflow.support.queues import contents, dead_letters, send_texts
from tests.airflow.support.receiving import DOWN_SECONDS, MOST_PINGS, count_pings, report_receiving, with_short_locks
from tests.airflow.support.versions import skip_without


def receive(**parameters: Any) -> ServiceBusReceiveOperator:
    if "folder" not in parameters:
        skip_without("task_state")
    return ServiceBusReceiveOperator(
        **{"task_id": "receive", "servicebus_pair_conn_id": CONN_ID, "entity": "flights", "max_wait": 2, **parameters}
    )


def left(pair: Pair) -> list[str]:
    return [message.body[:5] for message in contents(pair.primary["contoso"], "flights")]


def test_messages_go_to_the_xcom_or_beyond_a_size_to_a_file(pair: Pair, run_dag: RunDag, tmp_path: Path):
    served = pair.primary["contoso"]
    send_texts(served, "flights", "a", "b", application_properties={"carrier": "UA"})
    send_texts(served, "flights", *("large" + str(number) * 30_000 for number in range(4)))

    by_property = run_task(run_dag, lambda: receive(properties={"carrier": "UA"}, dead_letter="{{ 1 > 2 }}"))["receive"]
    assert by_property["count"] == 2
    assert [message["body"] for message in by_property["messages"]] == ["a", "b"]
    assert left(pair) == ["large"] * 4

    as_many_as_fit = run_task(run_dag, receive)["receive"]
    assert as_many_as_fit["count"] == 1
    assert left(pair) == ["large"] * 3

    in_file = run_task(run_dag, lambda: receive(folder=tmp_path))["receive"]
    assert in_file == {"count": 3, "messages": None, "path": in_file["path"]}
    lines = Path(in_file["path"].removeprefix("file://")).read_text().splitlines()
    assert [json.loads(line)["body"][:6] for line in lines] == ["large1", "large2", "large3"]
    assert left(pair) == []
    assert run_task(run_dag, receive)["receive"] == {"count": 0, "messages": [], "path": None}


def test_a_message_that_airflow_would_read_as_an_object_is_dead_lettered(pair: Pair, run_dag: RunDag):
    served = pair.primary["contoso"]
    poison = {"__type": "airflow.sdk.definitions.asset.Asset", "__var": "x"}
    send_texts(served, "flights", "a")
    send_texts(served, "flights", "b", application_properties=poison)
    send_texts(served, "flights", "c", application_properties={"__classname__": "x"})
    send_texts(served, "flights", "d")
    received = run_task(run_dag, receive)["receive"]
    assert [message["body"] for message in received["messages"]] == ["a", "d"]
    assert [each.split(":")[0] for each in dead_letters(served, "flights")] == ["Unreadable"] * 2


@pytest.mark.parametrize("stored_in", ["state", "file"])
def test_a_task_that_fails_after_storing_loses_nothing(
    pair: Pair, run_dag: RunDag, tmp_path: Path, stored_in: str, monkeypatch: pytest.MonkeyPatch
):
    """Airflow deletes the XComs of a task that is tried again."""
    if stored_in == "state":
        skip_without("task_state")
    size = 1 if stored_in == "state" else 60_000
    send_texts(pair.primary["contoso"], "flights", "a" * size, "b" * size)
    finished = ServiceBusReceiveOperator._receive
    tries: list[int] = []

    async def die_once(self: Any, *arguments: Any, **more: Any) -> Any:
        result = await finished(self, *arguments, **more)
        tries.append(1)
        if len(tries) == 1:
            raise RuntimeError("killed after the messages were completed")
        return result

    monkeypatch.setattr(ServiceBusReceiveOperator, "_receive", die_once)
    result = run_task(run_dag, lambda: receive(folder=tmp_path, retries=1))["receive"]

    assert len(tries) == 2
    assert result["count"] == 2
    assert (result["path"] is None) is (stored_in == "state")
    assert left(pair) == []


OF_NOBODY: list[Any] = ["x", [], {"messages": {}}, {"messages": ["a"]}, {"count": 1, "path": "/etc/passwd"}]


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ({"count": "x", "messages": [{"body": "a"}], "path": "/etc/passwd"}, {"count": 1, "messages": [{"body": "a"}]}),
        *((each, None) for each in OF_NOBODY),
    ],
)
def test_of_what_others_write_into_the_state_only_messages_are_returned(
    run_dag: RunDag,
    log_of_failure: LogOfFailure,
    monkeypatch: pytest.MonkeyPatch,
    kept: object,
    expected: dict[str, Any] | None,
):
    from servicebus_pair.airflow_runtime.state.accessor import TaskState

    async def get(*_: Any) -> object:
        return kept

    monkeypatch.setattr(TaskState, "get", get)
    if expected is None:
        assert "servicebus_pair/received of the task has no messages" in log_of_failure(receive)
    else:
        assert run_task(run_dag, receive)["receive"] == {**expected, "path": None}


def test_what_cannot_be_stored_stays_in_the_queue(
    pair: Pair, log_of_failure: LogOfFailure, monkeypatch: pytest.MonkeyPatch
):
    from servicebus_pair.airflow_runtime.state.accessor import TaskState

    send_texts(pair.primary["contoso"], "flights", "x" * 60_000)
    assert "without a folder, a result holds 48000" in log_of_failure(receive)

    async def fail(*_: Any) -> None:
        raise RuntimeError("the API server is down")

    monkeypatch.setattr(TaskState, "write", fail)
    send_texts(pair.primary["contoso"], "briefings", "small")
    log_of_failure(lambda: receive(entity="briefings"))
    assert [message.body for message in contents(pair.primary["contoso"], "briefings")] == ["small"]


def test_an_outage_in_the_middle_of_receiving_loses_nothing(
    pair: Pair, run_dag: RunDag, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
):
    """The primary dies after a task has stored its messages and before it completes them."""
    pings = count_pings(monkeypatch)
    with_short_locks(pair)
    sent = [f"m{number}" for number in range(500)]
    send_texts(pair.primary["contoso"], "flights", *sent)
    keep, while_down = ReceivedMessages.keep, [0]

    def end_outage() -> None:
        while not pings:  # however long the next task takes to begin
            time.sleep(0.05)
        time.sleep(DOWN_SECONDS)
        while_down.append(len(pings))
        pair.primary.start()

    outage = threading.Thread(target=end_outage, daemon=True)

    async def die_once(store: ReceivedMessages, fields: Any) -> Any:
        kept = await keep(store, fields)
        monkeypatch.setattr(ReceivedMessages, "keep", keep)
        await asyncio.to_thread(pair.primary.kill)
        outage.start()
        return kept

    received = Counter[str]()
    for run in range(20):
        result = run_task(run_dag, lambda: receive(folder=tmp_path, max_wait=6))["receive"]
        path = result["path"]
        stored = [] if path is None else Path(path.removeprefix("file://")).read_text().splitlines()
        messages = result["messages"] or [json.loads(line) for line in stored]
        received.update(message["body"] for message in messages)
        if run == 1:
            monkeypatch.setattr(ReceivedMessages, "keep", die_once)
        if not messages:
            break
    outage.join()
    waits = [each for each in caplog.messages if "flights: receiving waits" in each]
    report_receiving("operator", sent, received, pings=while_down[-1], lines=len(waits))
    assert len(waits) == 1, waits
    assert while_down[-1] <= MOST_PINGS
    assert left(pair) == []


def test_a_deferred_task_waits_for_the_primary_and_for_a_message(
    pair: Pair, run_dag: RunDag, restart_soon: RestartSoon
):
    send_texts(pair.primary["contoso"], "flights", "a")
    pair.primary.kill()
    restart_soon(pair.primary)

    found = run_task(
        run_dag,
        lambda: receive(deferrable=True, max_wait=timedelta(minutes=1)),
        lambda: receive(task_id="nothing", deferrable=True),
    )

    assert [message["body"] for message in found["receive"]["messages"]] == ["a"]
    assert found["nothing"]["count"] == 0


@pytest.mark.parametrize("fails", [False, True])
def test_a_function_completes_what_it_took_without_error(pair: Pair, run_dag: RunDag, fails: bool):
    send_texts(pair.primary["contoso"], "flights", "a", "b")

    def handle(messages: list[dict[str, Any]], factor: int, run_id: Any = None) -> int:
        assert run_id
        if fails:
            raise ValueError("cannot handle these")
        return factor * len(messages)

    with DAG("handled", schedule=None) as dag:
        decorate: Any = task.servicebus_receive
        decorate(servicebus_pair_conn_id=CONN_ID, entity="flights", max_wait=2)(handle)(factor=10)
    run = run_dag(dag)

    assert states(run) == {"handle": "failed" if fails else "success"}
    assert results(run) == ({} if fails else {"handle": 20})
    assert left(pair) == (["a", "b"] if fails else [])


def test_a_sensor_waits_for_a_message_and_leaves_it_there(pair: Pair, run_dag: RunDag):
    send_texts(pair.primary["contoso"], "flights", "a")

    def sensor(**parameters: Any) -> ServiceBusMessageSensor:
        return ServiceBusMessageSensor(servicebus_pair_conn_id=CONN_ID, entity="flights", poke_interval=1, **parameters)

    no = "{{ 1 > 2 }}"
    run_task(
        run_dag,
        lambda: sensor(task_id="poke", dead_letter=no),
        lambda: sensor(task_id="defer", dead_letter=no, deferrable=True),
    )
    assert left(pair) == ["a"]
    with DAG("none", schedule=None) as dag:
        sensor(task_id="none", dead_letter=True, timeout=1, soft_fail=True)
    assert states(run_dag(dag)) == {"none": "skipped"}
    assert dead_letters(pair.primary["contoso"], "flights") == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("entity", ""),
        ("max_messages", 10_001),
        ("max_wait", -1),
        ("dead_letter", "yes"),
        ("deferrable", 1),
        ("properties", "carrier"),
        ("folder", 5),
    ],
)
def test_invalid_parameters_are_refused(name: str, value: Any):
    with pytest.raises(ConfigurationError, match=name):
        receive(**{name: value})


def test_a_function_without_the_parameter_messages_is_refused():
    decorate = task.servicebus_receive(servicebus_pair_conn_id=CONN_ID, entity="flights")
    with DAG("wrong", schedule=None), pytest.raises(ConfigurationError, match="a parameter named messages"):
        decorate(lambda rows: rows)([])
