"""Concurrent writers of entity health do not hide each other's entities."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from airflow.sdk import Context

from servicebus_pair.airflow_runtime.state.health_store import AirflowHealthStore
from servicebus_pair.core.model.health_state import EntityHealth, HealthState
from servicebus_pair.operators._support.base import AsyncPairOperator
from tests.airflow.conftest import CONN_ID, RunDag, run_task

ENTITIES = [f"queue-{number}" for number in range(8)]


class SavesConcurrently(AsyncPairOperator):
    """Shares the first health of eight entities at the same time, each by a store of its own; then lists them."""

    async def aexecute(self, context: Context) -> Any:  # noqa: ARG002  the base class passes it
        health = EntityHealth(state=HealthState.FAILED_OVER, since=1.0, reason="test")
        await asyncio.gather(*(AirflowHealthStore(CONN_ID).save(entity, health) for entity in ENTITIES))
        return sorted(await AirflowHealthStore(CONN_ID).known())


@pytest.mark.usefixtures("fresh_state")
def test_entities_saved_concurrently_for_the_first_time_are_all_known(run_dag: RunDag):
    assert (
        run_task(run_dag, lambda: SavesConcurrently(task_id="crowd", servicebus_pair_conn_id=CONN_ID))["crowd"]
        == ENTITIES
    )
