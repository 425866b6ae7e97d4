"""Health that tasks share: none of them takes another's entity off the list (PLATFORM section 2: last write wins)."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest
from airflow.sdk import Context

from servicebus_pair.core.health import EntityHealth, State
from servicebus_pair.hooks.health import AirflowHealthStore
from servicebus_pair.hooks.roll import Roll
from servicebus_pair.operators.base import PairOperator
from tests.airflow.conftest import CONN_ID, RunDag, run_task

ENTITIES = [f"queue-{number}" for number in range(8)]


class EverybodyAtOnce(PairOperator):
    """Shares the first health of eight entities at the same time, each by a store of its own; then lists them."""

    async def aexecute(self, context: Context) -> Any:  # noqa: ARG002  the base class hands it over
        health = EntityHealth(state=State.FAILED_OVER, since=1.0, reason="test")
        await asyncio.gather(*(AirflowHealthStore(CONN_ID).save(entity, health) for entity in ENTITIES))
        return sorted(await AirflowHealthStore(CONN_ID).known())


@pytest.mark.usefixtures("fresh_state")
def test_entities_whose_first_health_is_shared_at_the_same_time_are_all_known(run_dag: RunDag):
    assert run_task(run_dag, lambda: EverybodyAtOnce(task_id="crowd", conn_id=CONN_ID))["crowd"] == ENTITIES


class InAnyOrder:
    """Registers whose readers and writers are let go one at a time, in an order of chance."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  an order, not a secret
        self._turns: list[asyncio.Event] = []
        self.values: dict[str, Any] = {}
        self.readings = 0

    async def get(self, key: str) -> Any:
        await self._turn()
        self.readings += 1
        return self.values.get(key)

    async def set(self, key: str, value: Any) -> None:
        await self._turn()
        self.values[key] = value

    async def _turn(self) -> None:
        self._turns.append(turn := asyncio.Event())
        await turn.wait()

    async def run(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        tasks = [asyncio.ensure_future(each) for each in work]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if self._turns:
                self._turns.pop(self._random.randrange(len(self._turns))).set()
        return [task.result() for task in tasks]


@pytest.mark.parametrize("seed", range(100))
async def test_no_order_of_reading_and_writing_loses_a_name(seed: int):
    registers = InAnyOrder(seed)
    names = [f"name-{number % 4}" for number in range(6)]

    await registers.run(*(Roll(registers, prefix="p/").add(name) for name in names))
    await registers.run(Roll(registers, prefix="p/").add("later"))
    found = await registers.run(Roll(registers, prefix="p/").names())

    assert found == [{*names, "later"}]


async def test_a_name_that_is_there_costs_one_reading():
    registers = InAnyOrder(0)
    await registers.run(Roll(registers, prefix="p/").add("name"))
    registers.readings = 0

    await registers.run(Roll(registers, prefix="p/").add("name"))

    assert registers.readings == 1


async def test_a_name_that_the_store_did_not_keep_is_put_down_the_next_time():
    registers = InAnyOrder(0)
    kept, registers.values = registers.values, Deaf()
    roll = Roll(registers, prefix="p/")
    await registers.run(roll.add("name"))
    registers.values = kept

    await registers.run(roll.add("name"))

    assert await registers.run(roll.names()) == [{"name"}]


class Deaf(dict[str, Any]):
    """Keeps nothing, as the state of an asset does that no DAG refers to."""

    def __setitem__(self, key: str, value: Any) -> None:
        """Forget it."""
