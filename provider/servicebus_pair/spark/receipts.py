"""What a task of a write tells the driver, and the one manifest that the driver makes of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql.datasource import WriterCommitMessage

from servicebus_pair.core.events import SLOT_SECONDS, Event, MessagesAccepted, Route
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.core.manifest import EntityManifest, PublishManifest

__all__ = ["Tally", "WriteReceipt", "batch_manifest", "merged"]


@dataclass(frozen=True, slots=True)
class WriteReceipt(WriterCommitMessage):
    """The commit message of a task: every message counted was accepted by its entity or a backlog queue.

    :param run: what the write is called.
    :param entities: counts by route and the health found, as JSON of ``EntityManifest``, by entity.
    :param bytes: encoded size of all accepted messages.
    :param began: when the task began, and ``ended``, when it ended: seconds since the Unix epoch.
    :param query: of a stream, its id.
    """

    run: str
    entities: str
    bytes: int
    began: float
    ended: float
    query: str | None = None


class Tally:
    """An observer that counts what was accepted, by entity and route, and when."""

    def __init__(self) -> None:
        self._accepted: Counter[tuple[str, Route]] = Counter()
        self._slots: Counter[tuple[str, int, Route]] = Counter()
        self._diverted_at: dict[str, float] = {}
        self.bytes = 0

    def observe(self, event: Event) -> None:
        """Count accepted messages."""
        if isinstance(event, MessagesAccepted):
            self._accepted[event.entity, event.route] += len(event.messages)
            self._slots[event.entity, int(event.at // SLOT_SECONDS), event.route] += len(event.messages)
            if event.route is Route.BACKLOG:
                self._diverted_at.setdefault(event.entity, event.at)
            self.bytes += sum(ref.size_bytes for ref in event.messages)

    def sentence(self) -> str:
        """Answer what was accepted so far, for an error."""
        primary, diverted = (
            sum(count for (_, route), count in self._accepted.items() if route is wanted)
            for wanted in (Route.PRIMARY, Route.BACKLOG)
        )
        return f"{primary} messages accepted by the primary and {diverted} by the backlog"

    def entities(self, found: Mapping[str, EntityHealth]) -> str:
        """Answer the counts, with the health found of each entity, for a receipt."""
        return json.dumps({entity: self._entity(entity, health).to_json() for entity, health in found.items()})

    def _entity(self, entity: str, health: EntityHealth) -> EntityManifest:
        slots = {slot for name, slot, _ in self._slots if name == entity}
        return EntityManifest(
            self._accepted[entity, Route.PRIMARY],
            self._accepted[entity, Route.BACKLOG],
            health,
            {
                slot: (self._slots[entity, slot, Route.PRIMARY], self._slots[entity, slot, Route.BACKLOG])
                for slot in slots
            },
            self._diverted_at.get(entity),
        )


def merged(receipts: Sequence[WriteReceipt]) -> PublishManifest:
    """Answer the manifest of a write of at least one task."""
    parts = (
        (entity, EntityManifest.from_json(part))
        for receipt in receipts
        for entity, part in json.loads(receipt.entities).items()
    )
    return PublishManifest.merge(
        parts,
        run=receipts[0].run,
        size_bytes=sum(receipt.bytes for receipt in receipts),
        seconds=max(receipt.ended for receipt in receipts) - min(receipt.began for receipt in receipts),
    )


def batch_manifest(folder: str, *, query: str, batch: int) -> Path:
    """Answer the file of a stream's manifest: it is there once that batch was committed."""
    return Path(folder) / query / f"{batch}.json"
