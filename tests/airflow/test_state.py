"""State of an asset that many coroutines of one task read and write at once, and who else is at work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk import Context

from servicebus_pair.hooks.assets import pair_asset
from servicebus_pair.hooks.state import AssetState, tasks_at_work
from servicebus_pair.operators.base import PairOperator
from tests.airflow.conftest import CONN_ID, RunDag, run_task

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun


class Crowd(PairOperator):
    """Keeps forty values at the same time, and reads them again."""

    async def aexecute(self, context: Context) -> Any:  # noqa: ARG002  the base class hands it over
        state = AssetState(pair_asset(CONN_ID))
        await asyncio.gather(*(state.set(f"key-{number}", number) for number in range(40)))
        return await asyncio.gather(*(state.get(f"key-{number}") for number in range(40)))


@pytest.mark.usefixtures("fresh_state")
def test_values_that_are_kept_at_the_same_time_are_all_kept(run_dag: RunDag):
    assert run_task(run_dag, lambda: Crowd(task_id="crowd", conn_id=CONN_ID))["crowd"] == list(range(40))


class Head(PairOperator):
    """Counts the tasks like itself, while the database says that so many of those expanded with it run."""

    def __init__(self, *, busy: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.busy = busy

    async def aexecute(self, context: Context) -> Any:
        mark(context["ti"], self.busy, "running")
        try:
            return await tasks_at_work()
        finally:
            mark(context["ti"], self.busy, None)


def mark(task: Any, count: int, state: str | None) -> None:
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import update

    beside = (TaskInstance.run_id == task.run_id, TaskInstance.map_index.between(1, count))
    with create_session() as session:
        session.execute(update(TaskInstance).where(*beside).values(state=state))


def counted(run: DagRun) -> list[Any]:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    found = select(XComModel.value).where(XComModel.run_id == run.run_id, XComModel.key == "return_value")
    with create_session() as session:
        return [int(value) for value in session.scalars(found.order_by(XComModel.map_index))]


@pytest.mark.usefixtures("fresh_state")
def test_a_task_knows_how_many_like_it_are_at_work(run_dag: RunDag):
    from airflow.sdk import DAG

    with DAG("heads", schedule=None) as dag:
        Head.partial(task_id="head", conn_id=CONN_ID, inlets=[pair_asset(CONN_ID)]).expand(busy=[3, 0, 0, 0, 0])
    run = run_dag(dag)

    assert counted(run) == [1 + 3, 1, 1, 1, 1]


async def test_outside_a_task_there_is_one():
    assert await tasks_at_work() == 1
