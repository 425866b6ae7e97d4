"""Access to Airflow's state stores: of an asset, in tasks and triggers, and of the running task.

Airflow's ``AssetStateStoreAccessor`` is not public. The public form, ``context["asset_state_store"]``, requires the
asset among the task's inlets and is missing in the triggers of deferred tasks (Airflow 3.3.2). Before 3.3 an asset's
state are Variables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, TypeVar

from airflow.sdk import Asset, get_current_context

from servicebus_pair.airflow_runtime.airflow_version import has, supervisor_comms, supervisor_is_async
from servicebus_pair.airflow_runtime.state.variables import VariableAccessor
from servicebus_pair.core.model import DaemonThread, get_logger

ResultT = TypeVar("ResultT")

_FINISHED: Final = ["success", "failed", "skipped", "upstream_failed", "removed"]

_log = get_logger(__name__)
# One thread for all calls: while dag.test serves one call, no other thread can reach its supervisor (Airflow 3.3.2).
_thread: Final = DaemonThread("Airflow state")


class _SoftState(ABC):
    """Small JSON values, without null, in one of Airflow's stores.

    The state is soft: a failing :meth:`get` returns ``None`` and a failing :meth:`set` is logged, because a send must
    not fail over its bookkeeping; :meth:`read` and :meth:`write` raise. The last writer wins; there is no
    compare-and-set.
    """

    _has_async_accessor = False

    def __init__(self, label: str) -> None:
        self._label = label

    @abstractmethod
    def _accessor(self) -> Any:
        """Return Airflow's accessor."""

    async def get(self, key: str) -> Any:
        """Return the value of ``key``, or ``None``."""
        try:
            return await self.read(key)
        except Exception as error:  # noqa: BLE001  soft state; task, triggerer and dag.test raise different errors
            _log.warning("%s key=%s: cannot read its state: %s", self._label, key, error)
            return None

    async def set(self, key: str, value: Any) -> None:
        """Store ``value`` under ``key``."""
        try:
            await self.write(key, value)
        except Exception as error:  # noqa: BLE001  as above
            _log.warning("%s key=%s: cannot write its state: %s", self._label, key, error)

    async def read(self, key: str) -> Any:
        """Return the value of ``key``, or ``None`` if there is none. :raises Exception: it cannot be read."""
        return await self._call("get", key)

    async def write(self, key: str, value: Any) -> None:
        """Store ``value`` under ``key``. :raises Exception: it cannot be stored."""
        await self._call("set", key, value)

    async def _call(self, method: str, *arguments: Any) -> Any:
        if self._has_async_accessor and supervisor_is_async():
            return await getattr(self._accessor(), f"a{method}")(*arguments)

        return await _thread.call(lambda: getattr(self._accessor(), method)(*arguments))


class _InMemoryAccessor(dict[str, Any]):
    set = dict.__setitem__


class AssetState(_SoftState):
    """State that is stored with an asset and survives runs; a DAG that Airflow has parsed must reference the asset.

    Without a supervisor, as when a hook is used outside any task, values live in this object only.

    :param asset: the asset; only its name is used.
    """

    _has_async_accessor = True

    def __init__(self, asset: Asset) -> None:
        super().__init__(f"asset={asset.name}")
        self._name = asset.name
        self._in_memory = _InMemoryAccessor()

    def _accessor(self) -> Any:
        if supervisor_comms() is None:
            return self._in_memory
        if not has("asset_state"):
            return VariableAccessor(self._name)
        from servicebus_pair.airflow_runtime.airflow_version import AssetStateStoreAccessor

        return AssetStateStoreAccessor(name=self._name)


class TaskState(_SoftState):
    """State of the running task, kept across retries and deferrals and deleted with the run."""

    def __init__(self) -> None:
        super().__init__("task")

    @property
    def available(self) -> bool:
        """True in a task; false in triggers and outside tasks."""
        return supervisor_comms() is not None and _task_state_store() is not None

    def _accessor(self) -> Any:
        accessor = _task_state_store()
        if accessor is None:
            raise RuntimeError("task state is only available inside a task")
        return accessor


async def call_supervisor(function: Callable[[], ResultT]) -> ResultT:
    """Call a function that talks to the supervisor, in the one thread that may.

    :raises TimeoutError: this call or one before it hangs.
    """
    return await _thread.call(function)


async def count_running_tasks() -> int:
    """Return how many instances of the current task run now, in all runs of its DAG, including this one.

    Returns 1 when that cannot be determined, as outside a task.
    """
    return await _count(lambda task: _instances(task, states=["running"]))


async def count_unfinished_tasks() -> int:
    """Return how many mapped instances of the current task in this run have not finished, including this one.

    Returns 1 when that cannot be determined, as outside a task.
    """
    return await _count(
        lambda task: _instances(task, run_ids=[task.run_id]) - _instances(task, run_ids=[task.run_id], states=_FINISHED)
    )


async def _count(count: Callable[[Any], int]) -> int:
    def in_task() -> int:
        return 1 if supervisor_comms() is None else count(get_current_context()["ti"])

    try:
        return max(1, await _thread.call(in_task))
    except Exception as error:  # noqa: BLE001  as above
        _log.warning("cannot count the instances of this task: %s", error)
        return 1


def _instances(task: Any, **of: Any) -> int:
    return int(task.get_ti_count(dag_id=task.dag_id, task_ids=[task.task_id], **of))


def _task_state_store() -> Any:
    try:
        return get_current_context()["task_state_store"]
    except (RuntimeError, KeyError):
        return None
