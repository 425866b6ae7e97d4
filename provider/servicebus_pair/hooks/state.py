"""The state of an asset, in tasks and in triggers, and the state of the task that runs.

The only place that uses Airflow's ``AssetStateStoreAccessor``, which is not public: the public form,
``context["asset_state_store"]``, needs the asset among the task's inlets and does not exist in the
triggers of deferred tasks (read in Airflow 3.3.2).
"""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

from airflow.sdk import Asset, get_current_context

__all__ = ["AssetState", "TaskState", "tasks_at_work"]

_log = logging.getLogger(__name__)
# While dag.test answers one call it takes the supervisor away from all others (read in Airflow 3.3.2).
_turn = threading.Lock()


class AssetState:
    """Small JSON values that survive runs, kept with an asset.

    What is kept is soft: a failing read answers ``None`` and a failing write is logged, because a
    send must not fail for want of a note. The store keeps the last writer and has no
    compare-and-set. The asset must be referenced by a DAG that Airflow has read.

    Where no store can be reached, as with a hook that is used outside any task, values live in this
    object only.

    :param asset: the asset; only its name is used.
    """

    def __init__(self, asset: Asset) -> None:
        self._name = asset.name
        self._alone: dict[str, Any] = {}

    async def get(self, key: str) -> Any:
        """Return the value of ``key``, or ``None``."""
        try:
            if hasattr(_supervisor(), "asend"):
                return await self._accessor().aget(key)
            return await asyncio.to_thread(self._get, key)
        except Exception as error:  # noqa: BLE001  soft, and what fails differs between task, triggerer and dag.test
            _log.warning("asset=%s key=%s: its state cannot be read: %s", self._name, key, error)
            return None

    async def set(self, key: str, value: Any) -> None:
        """Keep ``value``, which is JSON without null, under ``key``."""
        try:
            if hasattr(_supervisor(), "asend"):
                await self._accessor().aset(key, value)
            else:
                await asyncio.to_thread(self._set, key, value)
        except Exception as error:  # noqa: BLE001  as above
            _log.warning("asset=%s key=%s: its state cannot be kept: %s", self._name, key, error)

    def _get(self, key: str) -> Any:
        with _turn:
            return self._alone.get(key) if _supervisor() is None else self._accessor().get(key)

    def _set(self, key: str, value: Any) -> None:
        with _turn:
            if _supervisor() is None:
                self._alone[key] = value
            else:
                self._accessor().set(key, value)

    def _accessor(self) -> Any:
        from airflow.sdk.execution_time.context import AssetStateStoreAccessor

        return AssetStateStoreAccessor(name=self._name)


class TaskState:
    """Small JSON values of the task that runs: a retry, and a resumption after a deferral, find them again.

    They go with the task's run. As soft as :class:`AssetState`; in triggers and outside tasks there are none.
    """

    @property
    def there(self) -> bool:
        """True in a task."""
        return _supervisor() is not None and _own() is not None

    async def get(self, key: str) -> Any:
        """Return the value of ``key``, or ``None``."""
        try:
            return await asyncio.to_thread(self._get, key)
        except Exception as error:  # noqa: BLE001  soft, as above
            _log.warning("key=%s: the state of the task cannot be read: %s", key, error)
            return None

    async def set(self, key: str, value: Any) -> None:
        """Keep ``value``, which is JSON without null, under ``key``."""
        try:
            await asyncio.to_thread(self._set, key, value)
        except Exception as error:  # noqa: BLE001  soft, as above
            _log.warning("key=%s: the state of the task cannot be kept: %s", key, error)

    def _get(self, key: str) -> Any:
        with _turn:
            return self._accessor().get(key)

    def _set(self, key: str, value: Any) -> None:
        with _turn:
            self._accessor().set(key, value)

    def _accessor(self) -> Any:
        accessor = _own()
        if accessor is None:
            raise RuntimeError("there is no state of a task outside a task")
        return accessor


async def tasks_at_work() -> int:
    """Return how many tasks with the DAG and the id of this one run now, in any of the DAG's runs, itself among them.

    Soft, too: 1 where nobody can tell, as outside a task.
    """
    try:
        return max(1, await asyncio.to_thread(_count_like_this))
    except Exception as error:  # noqa: BLE001  soft, as above
        _log.warning("the tasks that run beside this one cannot be counted: %s", error)
        return 1


def _count_like_this() -> int:
    if _supervisor() is None:
        return 1
    task = get_current_context()["ti"]
    with _turn:
        return task.get_ti_count(dag_id=task.dag_id, task_ids=[task.task_id], states=["running"])


def _own() -> Any:
    """The accessor of the task that runs, or nothing outside a task."""
    try:
        return get_current_context()["task_state_store"]
    except (RuntimeError, KeyError):
        return None


def _supervisor() -> Any:
    """What a task, or a trigger in the triggerer, asks; the one of ``dag.test`` has no asynchronous form."""
    from airflow.sdk.execution_time import task_runner

    return getattr(task_runner, "SUPERVISOR_COMMS", None)
