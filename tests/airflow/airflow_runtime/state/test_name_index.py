"""No interleaving of concurrent writers loses a name."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

from servicebus_pair.airflow_runtime.state.name_index import NameIndex


class RandomlyScheduledStore:
    """A store that runs its readers and writers one at a time, in random order."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  an order, not a secret
        self._waiting: list[asyncio.Event] = []
        self.values: dict[str, Any] = {}
        self.reads = 0

    async def get(self, key: str) -> Any:
        await self._wait_to_be_scheduled()
        self.reads += 1
        return self.values.get(key)

    async def set(self, key: str, value: Any) -> None:
        await self._wait_to_be_scheduled()
        self.values[key] = value

    async def _wait_to_be_scheduled(self) -> None:
        self._waiting.append(turn := asyncio.Event())
        await turn.wait()

    async def run(self, *work: Coroutine[Any, Any, Any]) -> list[Any]:
        tasks = [asyncio.ensure_future(each) for each in work]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if self._waiting:
                self._waiting.pop(self._random.randrange(len(self._waiting))).set()
        return [task.result() for task in tasks]


async def test_no_interleaving_of_writers_loses_a_name():
    names = [f"name-{number % 4}" for number in range(6)]
    for seed in range(100):
        store = RandomlyScheduledStore(seed)

        await store.run(*(NameIndex(store, prefix="p/").add(name) for name in names))
        await store.run(NameIndex(store, prefix="p/").add("later"))
        found = await store.run(NameIndex(store, prefix="p/").names())

        assert found == [{*names, "later"}], seed


async def test_adding_a_known_name_costs_one_read():
    store = RandomlyScheduledStore(0)
    await store.run(NameIndex(store, prefix="p/").add("name"))
    store.reads = 0

    await store.run(NameIndex(store, prefix="p/").add("name"))

    assert store.reads == 1


async def test_a_name_lost_by_a_failing_store_is_added_the_next_time():
    store = RandomlyScheduledStore(0)
    kept, store.values = store.values, ForgetfulDict()
    index = NameIndex(store, prefix="p/")
    await store.run(index.add("name"))
    store.values = kept

    await store.run(index.add("name"))

    assert await store.run(index.names()) == [{"name"}]


class ForgetfulDict(dict[str, Any]):
    """Keeps nothing, like the state of an asset that no DAG references."""

    def __setitem__(self, key: str, value: Any) -> None:
        """Do nothing."""
