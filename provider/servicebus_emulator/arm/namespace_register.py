"""Stores the properties of namespaces other than their entities: tags, location, and which were created at run time."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from servicebus_emulator.engine.runtime.journal import JournalError

_FILE_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceRecord:
    """The properties of a namespace. Times are in milliseconds since 1970.

    :ivar added: whether it was created at run time and must be served again after a restart.
    :ivar tier: the tier that a client chose with the sku; None = that with which the namespace was started, if any.
    :ivar properties: values that a client has set and the emulator ignores.
    """

    name: str
    created: int
    updated: int
    added: bool = False
    location: str = "local"
    tags: Mapping[str, str] = field(default_factory=dict)
    sku: Mapping[str, Any] = field(default_factory=lambda: {"name": "Standard", "tier": "Standard"})
    tier: str | None = None
    identity: Mapping[str, Any] | None = None
    properties: Mapping[str, Any] = field(default_factory=dict)


class NamespaceRegister:
    """Records of namespaces by case-insensitive name; each change is durable when the method returns.

    The file is replaced atomically, so that a crash leaves the old or the new one.

    :param path: the file; None = in memory only.
    :raises JournalError: the file cannot be read or has another version.
    """

    def __init__(self, path: Path | None) -> None:
        self._path: Final = path
        self._records: dict[str, NamespaceRecord] = {}
        if path is not None and path.exists():
            self._records = _load(path)

    @property
    def records(self) -> tuple[NamespaceRecord, ...]:
        """All records, in insertion order."""
        return tuple(self._records.values())

    def get(self, name: str) -> NamespaceRecord | None:
        """Return the record of a namespace."""
        return self._records.get(name.casefold())

    def put(self, record: NamespaceRecord) -> None:
        """Store a record, replacing the one of the same name.

        :raises JournalError: the file cannot be written; the old record is kept.
        """
        self._save({**self._records, record.name.casefold(): record})

    def remove(self, name: str) -> None:
        """Remove a record, if it exists.

        :raises JournalError: the file cannot be written.
        """
        self._save({key: record for key, record in self._records.items() if key != name.casefold()})

    def _save(self, records: dict[str, NamespaceRecord]) -> None:
        if self._path is not None:
            document = {"version": _FILE_VERSION, "namespaces": [asdict(record) for record in records.values()]}
            try:
                _replace(self._path, text=json.dumps(document, indent=1))
            except OSError as error:
                raise JournalError(f"{self._path} cannot be written: {error}") from error
        self._records = records


def _load(path: Path) -> dict[str, NamespaceRecord]:
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        version = document["version"]
        records = [NamespaceRecord(**record) for record in document["namespaces"]] if version == _FILE_VERSION else []
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise JournalError(f"{path} cannot be read: {error}") from error
    if version != _FILE_VERSION:
        raise JournalError(f"{path} has version {version!r}; allowed: {_FILE_VERSION}")
    return {record.name.casefold(): record for record in records}


def _replace(path: Path, *, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.new")
    temporary.touch(mode=0o600)
    with temporary.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
