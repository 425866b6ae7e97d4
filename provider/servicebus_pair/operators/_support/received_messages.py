"""Where a task keeps the messages that it received, before they are completed."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from airflow.sdk import Context, ObjectStoragePath

from servicebus_pair.airflow_runtime.state.accessor import TaskState
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import open_regular
from servicebus_pair.operators._support.json_lines import confined_path

__all__ = ["ReceivedMessages"]

_STATE_KEY: Final = "servicebus_pair/received"
# Airflow's state store takes 64 KB; the rest is for the keys and for escapes.
_MAX_STATE_BYTES: Final = 48_000
_OWN_SCHEMES: Final = ("", "file")
# Whoever triggers a run chooses its id: as ".." it would lead out of the folder of its DAG.
_NOT_A_NAME: Final = re.compile(r"[/%\x00]|^\.+$")


class ReceivedMessages:
    """Keeps messages in the state of the task, or beyond a size in a file of JSON lines.

    Both survive the task's retries, which XComs do not: Airflow deletes them when a try begins.

    :param folder: path or URL of a folder; messages beyond the size are refused when not given.
    """

    def __init__(self, context: Context, *, folder: str | None, storage_conn_id: str | None) -> None:
        self._state = TaskState()
        self._file: ObjectStoragePath | None = None
        if folder is not None:
            instance = context["ti"]
            parts = [instance.dag_id, instance.run_id, instance.task_id]
            if (index := getattr(instance, "map_index", -1)) is not None and index >= 0:
                parts.append(str(index))
            *folders, name = (_NOT_A_NAME.sub(_encoded, part) for part in parts)
            self._file = ObjectStoragePath(confined_path(folder), conn_id=storage_conn_id).joinpath(
                *folders, f"{name}.jsonl"
            )

    async def load(self) -> dict[str, Any] | None:
        """Return the result of an earlier try that kept messages, or ``None``.

        :raises ConfigurationError: the state of the task is not what one kept.
        """
        kept = await self._state.get(_STATE_KEY) if self._state.available else None
        if kept is not None:
            messages = kept.get("messages") if isinstance(kept, Mapping) else None
            if not isinstance(messages, list) or not all(isinstance(each, Mapping) for each in messages):
                raise ConfigurationError(
                    f"state {_STATE_KEY} of the task has no messages: delete it, then clear the task"
                )
            return _result(len(messages), messages=messages)
        if self._file is None or not self._file.exists():
            return None
        if self._file.protocol in _OWN_SCHEMES:
            with open_regular(self._file.path) as lines:
                count = sum(block.count(b"\n") for block in iter(lambda: lines.read(1 << 20), b""))
        else:
            count = self._file.read_bytes().count(b"\n")
        return _result(count, path=str(self._file))

    def fitting(self, messages: Sequence[Mapping[str, Any]]) -> int:
        """Return how many of the messages can be kept, from the first one on.

        :raises ConfigurationError: not even the first one.
        """
        if self._file is not None:
            return len(messages)
        total = count = 0
        for message in messages:
            total += len(json.dumps(message)) + 2
            if total > _MAX_STATE_BYTES:
                break
            count += 1
        if messages and not count:
            raise ConfigurationError(
                f"a message has {total} bytes as JSON: without a folder, a result holds {_MAX_STATE_BYTES}"
            )
        return count

    async def keep(self, messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Keep messages and return the task's result. :raises Exception: they may not be kept."""
        size = sum(len(json.dumps(message)) + 2 for message in messages)
        if self._file is not None and (size > _MAX_STATE_BYTES or not self._state.available):
            self._write(self._file, messages)
            return _result(len(messages), path=str(self._file))
        result = _result(len(messages), messages=list(messages))
        if self._state.available:
            await self._state.write(_STATE_KEY, result)
        return result

    @staticmethod
    def _write(file: ObjectStoragePath, messages: Sequence[Mapping[str, Any]]) -> None:
        lines = b"".join(json.dumps(message).encode() + b"\n" for message in messages)
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.protocol not in _OWN_SCHEMES:
            file.write_bytes(lines)  # an object is there as a whole or not at all
            return
        final = Path(file.path)
        partial = final.with_suffix(".part")
        # Left by a try that was killed, or a link that somebody else laid there.
        partial.unlink(missing_ok=True)
        with partial.open("xb") as opened:
            opened.write(lines)
            opened.flush()
            os.fsync(opened.fileno())
        partial.replace(final)


def _encoded(found: re.Match[str]) -> str:
    return "".join(f"%{ord(character):02X}" for character in found[0])


def _result(
    count: int, *, messages: Sequence[Mapping[str, Any]] | None = None, path: str | None = None
) -> dict[str, Any]:
    return {"count": count, "messages": messages, "path": path}
