"""Health that the processes of a chaos run share: one small file for each entity."""

from __future__ import annotations

import json
import os
from pathlib import Path

from servicebus_pair.core import EntityHealth


class FileHealthStore:
    """A health store in a folder; the last writer wins, as in the stores of Airflow.

    :param folder: created if it does not exist.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self._folder = folder

    async def load(self, entity: str) -> EntityHealth | None:
        """Return the stored health of ``entity``, or ``None``."""
        try:
            return EntityHealth.from_json(json.loads(self._path(entity).read_text()))
        except FileNotFoundError:
            return None

    async def save(self, entity: str, health: EntityHealth) -> None:
        """Store the health of ``entity``; a process that is killed leaves the old or the new one."""
        path = self._path(entity)
        written = path.with_suffix(f".{os.getpid()}")
        written.write_text(json.dumps(health.to_json()))
        written.replace(path)

    def _path(self, entity: str) -> Path:
        return self._folder / f"{entity.casefold()}.json"
