"""State of an asset that many coroutines of one task read and write at once."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from airflow.sdk import Context

from servicebus_pair.hooks.assets import pair_asset
from servicebus_pair.hooks.state import AssetState
from servicebus_pair.operators.base import PairOperator
from tests.airflow.conftest import CONN_ID, RunDag, run_task


class Crowd(PairOperator):
    """Keeps forty values at the same time, and reads them again."""

    async def aexecute(self, context: Context) -> Any:  # noqa: ARG002  the base class hands it over
        state = AssetState(pair_asset(CONN_ID))
        await asyncio.gather(*(state.set(f"key-{number}", number) for number in range(40)))
        return await asyncio.gather(*(state.get(f"key-{number}") for number in range(40)))


@pytest.mark.usefixtures("fresh_state")
def test_values_that_are_kept_at_the_same_time_are_all_kept(run_dag: RunDag):
    assert run_task(run_dag, lambda: Crowd(task_id="crowd", conn_id=CONN_ID))["crowd"] == list(range(40))
