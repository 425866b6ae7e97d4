"""The state of an asset in Airflow's Variables, before Airflow 3.3."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from servicebus_pair.airflow_runtime.airflow_version import (
    GetVariable,
    PutVariable,
    VariableResult,
    answered,
    supervisor_comms,
)
from servicebus_pair.assets import ASSET_NAME_PREFIX

VARIABLE_PREFIX: Final = "servicebus_pair/"
_MAX_NAME: Final = 250
_DIGEST: Final = 16


def variable_name(asset_name: str, key: str) -> str:
    """Return the Variable of a key: ``servicebus_pair/CONN_ID/KEY``, with a digest for an end that is too long."""
    name = f"{VARIABLE_PREFIX}{asset_name.removeprefix(ASSET_NAME_PREFIX)}/{key}"
    if len(name) <= _MAX_NAME:
        return name
    return name[: _MAX_NAME - _DIGEST] + hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]


class VariableAccessor:
    """Reads and writes the state of one asset, with the methods of Airflow 3.3's accessor.

    It asks the supervisor, not ``airflow.sdk.Variable``, which asks a secrets backend first and hides the failure of a
    write.

    :param asset_name: the name of the asset.
    """

    def __init__(self, asset_name: str) -> None:
        self._asset_name = asset_name

    def get(self, key: str) -> Any:
        """Return the value, or ``None`` if there is none. :raises Exception: it cannot be read."""
        return self._value(key, supervisor_comms().send(self._get(key)))

    def set(self, key: str, value: Any) -> None:
        """Store the value. :raises Exception: it cannot be stored."""
        supervisor_comms().send(self._put(key, value))

    async def aget(self, key: str) -> Any:
        """Return the value, as :meth:`get`."""
        return self._value(key, await answered(supervisor_comms().asend(self._get(key))))

    async def aset(self, key: str, value: Any) -> None:
        """Store the value, as :meth:`set`."""
        await answered(supervisor_comms().asend(self._put(key, value)))

    def _get(self, key: str) -> GetVariable:
        return GetVariable(key=variable_name(self._asset_name, key))

    def _put(self, key: str, value: Any) -> PutVariable:
        name = variable_name(self._asset_name, key)
        return PutVariable(key=name, value=json.dumps(value), description="written by the Service Bus pair")

    @staticmethod
    def _value(key: str, answer: Any) -> Any:
        if isinstance(answer, VariableResult):
            return None if answer.value is None else json.loads(answer.value)
        error = getattr(getattr(answer, "error", None), "name", "")
        if answer is None or error == "VARIABLE_NOT_FOUND":
            return None
        raise RuntimeError(f"the Variable of {key} cannot be read: {error or type(answer).__name__}")
