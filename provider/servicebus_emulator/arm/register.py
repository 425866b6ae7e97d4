"""What is known of namespaces beside their entities: tags, location, and which were added while running."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from servicebus_emulator.engine.journal import JournalError

__all__ = ["NamespaceRecord", "Register"]

_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRecord:
    """What is known of a namespace. Times in milliseconds since 1970.

    :ivar added: whether it came into being while running, and so is to be served after a restart.
    :ivar properties: what a client has set and nothing here reads.
    """

    name: str
    created: int
    updated: int
    added: bool = False
    location: str = "local"
    tags: Mapping[str, str] = field(default_factory=dict)
    sku: Mapping[str, Any] = field(default_factory=lambda: {"name": "Standard", "tier": "Standard"})
    identity: Mapping[str, Any] | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)


class Register:
    """Records of namespaces by name, compared without case; each change is durable when it returns.

    The file is replaced as a whole, so that a process that dies leaves the old one or the new one.

    :param path: the file; None = in memory only.
    :raises JournalError: when the file cannot be read or is of another version.
    """

    def __init__(self, path: Path | None) -> None:
        self._path: Final = path
        self._records: dict[str, NamespaceRecord] = {}
        if path is not None and path.exists():
            self._records = _load(path)

    @property
    def records(self) -> tuple[NamespaceRecord, ...]:
        """All records, in the order in which they came."""
        return tuple(self._records.values())

    def get(self, name: str) -> NamespaceRecord | None:
        """Return the record of a namespace."""
        return self._records.get(name.casefold())

    def put(self, record: NamespaceRecord) -> None:
        """Keep a record in place of the one of the same name.

        :raises JournalError: when it cannot be kept; then the old one is.
        """
        self._save({**self._records, record.name.casefold(): record})

    def remove(self, name: str) -> None:
        """Forget a record. One that is not there is forgotten.

        :raises JournalError: when that cannot be kept.
        """
        self._save({key: record for key, record in self._records.items() if key != name.casefold()})

    def _save(self, records: dict[str, NamespaceRecord]) -> None:
        if self._path is not None:
            document = {"version": _VERSION, "namespaces": [asdict(record) for record in records.values()]}
            try:
                _replace(self._path, text=json.dumps(document, indent=1))
            except OSError as error:
                raise JournalError(f"{self._path} cannot be written: {error}") from error
        self._records = records


def _load(path: Path) -> dict[str, NamespaceRecord]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document["version"]
        records = [NamespaceRecord(**record) for record in document["namespaces"]] if version == _VERSION else []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JournalError(f"{path} cannot be read: {error}") from error
    if version != _VERSION:
        raise JournalError(f"{path} is of version {version!r}; allowed: {_VERSION}")
    return {record.name.casefold(): record for record in records}


def _replace(path: Path, *, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f"{path.name}.new")
    fresh.touch(mode=0o600)
    with fresh.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
