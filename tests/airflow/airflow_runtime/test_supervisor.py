"""Requests to the supervisor on Airflow 3.1, whose channels keep neither threads nor cancelled requests apart."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from airflow.sdk.execution_time import task_runner

from servicebus_pair.airflow_runtime.airflow_version import GetVariable, VariableResult, supervisor_comms
from servicebus_pair.airflow_runtime.state.accessor import AssetState
from servicebus_pair.assets import pair_asset
from tests.airflow.conftest import CONN_ID


@pytest.fixture(autouse=True)
def as_on_airflow_31(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow.__version__", "3.1.8")


class TriggerCommsDecoder:
    """The channel of a triggerer with the order of 3.1's: a request, then the next answer, whoever asked for it."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._answers: asyncio.Queue[Any] = asyncio.Queue()

    async def asend(self, msg: GetVariable) -> Any:
        async with self._lock:
            answer = VariableResult(key=msg.key, value=json.dumps(msg.key.rpartition("/")[2]))
            asyncio.get_running_loop().call_later(0.05, self._answers.put_nowait, answer)
            return await self._answers.get()


async def test_a_trigger_that_is_cancelled_leaves_no_answer_to_the_next_request(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", TriggerCommsDecoder(), raising=False)
    state = AssetState(pair_asset(CONN_ID))

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(state.read("first"), 0.01)

    assert await state.read("second") == "second"


class CommsDecoder:
    """The channel of a task with the order of 3.1's: the last thread that asked may read the first answer."""

    def __init__(self) -> None:
        self._answers: list[str] = []

    def send(self, msg: GetVariable) -> str:
        self._answers.append(msg.key)
        time.sleep(0.01)  # the supervisor answers
        return self._answers.pop()


def test_threads_of_a_task_get_their_own_answers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", CommsDecoder(), raising=False)
    names = [f"name{number}" for number in range(8)]

    with ThreadPoolExecutor(len(names)) as threads:
        assert list(threads.map(lambda name: supervisor_comms().send(GetVariable(key=name)), names)) == names
