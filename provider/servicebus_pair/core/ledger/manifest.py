"""Manifest of a publish for Airflow to read: message counts by route, and the health of the entities."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from servicebus_pair.core.ledger.reader import MAX_AT, MAX_BYTES
from servicebus_pair.core.model.health_state import EntityHealth
from servicebus_pair.core.spool.folder_storage import replace_file

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class EntityManifest:
    """Messages of one entity, in one task or in all tasks.

    :param primary: number of messages accepted by the entity.
    :param diverted: number of messages accepted by backlog queues or the spool.
    :param health: at the end of the task; ``since`` is 0 if every send succeeded.
    :param slots: both counts over time, ``{slot: (primary, diverted)}``; a slot is a multiple of ``SLOT_SECONDS`` since
        the Unix epoch.
    :param diverted_at: when the first message was diverted, in seconds since the Unix epoch.
    """

    primary: int
    diverted: int
    health: EntityHealth
    slots: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    diverted_at: float | None = None

    @classmethod
    def total(cls, parts: Sequence[EntityManifest]) -> EntityManifest:
        """Return the sum of all parts, of which there may be one for each batch of a stream, with the newest health."""
        slots: dict[int, tuple[int, int]] = {}
        for slot, (primary, diverted) in chain.from_iterable(each.slots.items() for each in parts):
            before = slots.get(slot, (0, 0))
            slots[slot] = (before[0] + primary, before[1] + diverted)
        return cls(
            sum(each.primary for each in parts),
            sum(each.diverted for each in parts),
            max((each.health for each in parts), key=lambda health: health.since),
            slots,
            min((each.diverted_at for each in parts if each.diverted_at is not None), default=None),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form used in the manifest."""
        return {
            "primary": self.primary,
            "diverted": self.diverted,
            "health": self.health.to_json(),
            "slots": [[slot, *counts] for slot, counts in sorted(self.slots.items())],
            "diverted_at": self.diverted_at,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> EntityManifest:
        """Read the output of :meth:`to_json`, also without times. :raises ValueError: ``value`` is malformed."""
        try:
            first = value.get("diverted_at")
            return cls(
                _count(value["primary"]),
                _count(value["diverted"]),
                EntityHealth.from_json(value["health"]),
                {
                    int(_within(slot, MAX_AT)): (_count(primary), _count(diverted))
                    for slot, primary, diverted in value.get("slots", ())
                },
                None if first is None else _within(first, MAX_AT),
            )
        except (KeyError, TypeError, OverflowError) as error:
            raise ValueError(f"not an entity of a manifest, {type(error).__name__}: {error}") from error


@dataclass(frozen=True, slots=True)
class PublishManifest:
    """Result of a publish: every counted message was accepted by its entity or a backlog queue.

    :param run: name of the run in the ledger.
    :param bytes: encoded size of all accepted messages.
    :param seconds: from the start of the first task to the end of the last, measured by the driver.
    :param ledger: the ledger files of these tasks, with the number of their records.
    :param rejected: rows that can never be sent, and were written to the error table.
    """

    run: str
    entities: Mapping[str, EntityManifest]
    bytes: int
    seconds: float
    ledger: Mapping[str, int] = field(default_factory=dict)
    rejected: int = 0

    @classmethod
    def merge(
        cls,
        parts: Iterable[tuple[str, EntityManifest]],
        *,
        run: str,
        size_bytes: int,
        seconds: float,
        ledger: Mapping[str, int] | None = None,
        rejected: int = 0,
    ) -> PublishManifest:
        """Sum the parts of all tasks by entity, keeping the newest health."""
        by_entity: defaultdict[str, list[EntityManifest]] = defaultdict(list)
        for entity, part in parts:
            by_entity[entity].append(part)
        entities = {entity: EntityManifest.total(each) for entity, each in sorted(by_entity.items())}
        files = dict(sorted((ledger or {}).items()))
        return cls(run, entities, size_bytes, round(seconds, 3), files, rejected)

    @property
    def primary(self) -> int:
        """Number of messages accepted by their entity."""
        return sum(entity.primary for entity in self.entities.values())

    @property
    def diverted(self) -> int:
        """Number of messages accepted by the backlog or the spool."""
        return sum(entity.diverted for entity in self.entities.values())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that is written to the file and that Airflow reads."""
        return {
            "version": _VERSION,
            "run": self.run,
            "entities": {path: entity.to_json() for path, entity in self.entities.items()},
            "bytes": self.bytes,
            "seconds": self.seconds,
            "ledger": dict(self.ledger),
            "rejected": self.rejected,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PublishManifest:
        """Read the output of :meth:`to_json`, ignoring other keys.

        :raises ValueError: ``value`` is malformed or of another version.
        """
        if not isinstance(value, Mapping):
            raise ValueError(f"a manifest is a JSON object, not a {type(value).__name__}")  # noqa: TRY004  as documented
        if value.get("version") != _VERSION:
            raise ValueError(f"the manifest's version is {value.get('version')!r}: this reads {_VERSION}")
        try:
            entities = {path: EntityManifest.from_json(entity) for path, entity in value["entities"].items()}
            files = {str(name): _count(records) for name, records in value.get("ledger", {}).items()}
            return cls(
                str(value["run"]),
                entities,
                _count(value["bytes"]),
                _within(value["seconds"], MAX_BYTES),
                files,
                _count(value.get("rejected", 0)),
            )
        except (KeyError, TypeError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a manifest, {type(error).__name__}: {error}") from error

    def write(self, path: str | os.PathLike[str], **extra: Any) -> None:
        """Write the manifest as JSON, atomically.

        :param extra: further top-level keys.
        """
        replace_file(path, json.dumps({**self.to_json(), **extra}, indent=2) + "\n")


def _count(value: Any) -> int:
    _within(value, MAX_BYTES)
    return int(value)


def _within(value: Any, largest: int) -> float:
    number = float(value)
    if not 0 <= number <= largest:
        raise ValueError(f"a number in the manifest is {number}: allowed are 0 to {largest}")
    return number
