"""The count of running task instances; test_health_store covers concurrent access to the state."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from airflow.models.dagrun import DagRun
from airflow.sdk import Context

from servicebus_pair.airflow_runtime.state import accessor
from servicebus_pair.airflow_runtime.state.accessor import AssetState, count_running_tasks
from servicebus_pair.airflow_runtime.state.health_store import AirflowHealthStore
from servicebus_pair.assets import pair_asset
from servicebus_pair.core.model import DaemonThread, daemon_thread
from servicebus_pair.operators._support.base import AsyncPairOperator
from tests.airflow.conftest import CONN_ID, RunDag


class CountsRunningTasks(AsyncPairOperator):
    """Counts the running instances of its task while the database lists ``busy`` others as running."""

    def __init__(self, *, busy: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.busy = busy

    async def aexecute(self, context: Context) -> Any:
        set_state(context["ti"], self.busy, "running")
        try:
            return await count_running_tasks()
        finally:
            set_state(context["ti"], self.busy, None)


def set_state(task: Any, count: int, state: str | None) -> None:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import update

    others = (TaskInstance.run_id == task.run_id, TaskInstance.map_index.between(1, count))
    with create_session() as session:
        session.execute(update(TaskInstance).where(*others).values(state=state))


def xcom_results(run: DagRun) -> list[Any]:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    found = select(XComModel.value).where(XComModel.run_id == run.run_id, XComModel.key == "return_value")
    with create_session() as session:
        return [int(value) for value in session.scalars(found.order_by(XComModel.map_index))]


@pytest.mark.usefixtures("fresh_state")
def test_running_mapped_instances_of_the_task_are_counted(run_dag: RunDag):
    from airflow.sdk import DAG

    with DAG("heads", schedule=None) as dag:
        CountsRunningTasks.partial(
            task_id="head", servicebus_pair_conn_id=CONN_ID, inlets=[pair_asset(CONN_ID)]
        ).expand(busy=[3, 0, 0, 0, 0])
    run = run_dag(dag)

    assert xcom_results(run) == [1 + 3, 1, 1, 1, 1]


async def test_outside_a_task_the_count_is_one():
    assert await count_running_tasks() == 1


class BlockingAccessor:
    """A state store that never answers."""

    def get(self, key: str) -> Any:
        threading.Event().wait()
        raise AssertionError(key)

    set = get


async def test_section_4_a_state_store_that_hangs_costs_one_thread_and_fails_at_once(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(daemon_thread, "HANG_SECONDS", 0.2)
    monkeypatch.setattr(accessor, "_thread", DaemonThread("Airflow state"))
    monkeypatch.setattr(AssetState, "_accessor", lambda _: BlockingAccessor())
    store, state = AirflowHealthStore(CONN_ID), AssetState(pair_asset(CONN_ID))
    before = threading.active_count()
    began = 0.0
    for _ in range(12):
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="the thread of Airflow state hangs"):
            await store.load("flights")
        assert await state.get("key") is None
        await state.set("key", 1)
    assert time.monotonic() - began < 0.2
    assert threading.active_count() - before <= 1
    assert await asyncio.wait_for(asyncio.to_thread(list), 5) == []
