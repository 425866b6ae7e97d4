"""Commit messages of write tasks, and the manifest that the driver merges them into."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from pyspark.sql.datasource import WriterCommitMessage

from servicebus_pair.core import EntityHealth
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.events import SLOT_SECONDS, Event, MessagesAccepted, Route
from servicebus_pair.core.ledger import EntityManifest, PublishManifest
from servicebus_pair.core.model import load_json
from servicebus_pair.core.spool import SHARED_MODE, FolderStorage
from servicebus_pair.spark.base.redaction import SparkTaskError
from servicebus_pair.spark.base.report_files import MAX_JSON_BYTES

_BATCH: Final = "batch"


@dataclass(frozen=True, slots=True)
class TaskCommitMessage(WriterCommitMessage):
    """The commit message of a task: every counted message was accepted by its entity or a backlog queue.

    :param run: name of the write in the ledger and manifest.
    :param bytes: encoded size of all accepted messages.
    :param started_at: seconds since the Unix epoch.
    :param ended_at: seconds since the Unix epoch.
    :param query_id: for a stream.
    :param ledger: the task's ledger file, with the number of its records.
    :param failure: what no other attempt could mend; the driver fails the write with it.
    :param rejected: rows that can never be sent, and were written to the error table.
    :param spool_host: the machine of the task, if its spool is a folder.
    """

    run: str
    entities: Mapping[str, EntityManifest]
    bytes: int
    started_at: float
    ended_at: float
    query_id: str | None = None
    ledger: Mapping[str, int] = field(default_factory=dict)
    failure: str | None = None
    rejected: int = 0
    spool_host: str | None = None


class AcceptanceCounter:
    """Observer that counts accepted messages by entity, route and time slot."""

    def __init__(self) -> None:
        self._accepted: Counter[tuple[str, Route]] = Counter()
        self._slots: Counter[tuple[str, int, Route]] = Counter()
        self._diverted_at: dict[str, float] = {}
        self.bytes = 0

    def observe(self, event: Event) -> None:
        """Count accepted messages."""
        if isinstance(event, MessagesAccepted):
            # What is in the spool counts as diverted: both wait for a syphon.
            route = Route.PRIMARY if event.route is Route.PRIMARY else Route.BACKLOG
            self._accepted[event.entity, route] += len(event.messages)
            self._slots[event.entity, int(event.at // SLOT_SECONDS), route] += len(event.messages)
            if route is Route.BACKLOG:
                self._diverted_at.setdefault(event.entity, event.at)
            self.bytes += sum(ref.size_bytes for ref in event.messages)

    def summary(self) -> str:
        """Describe the counts so far, for an error message."""
        primary = sum(count for (_, route), count in self._accepted.items() if route is Route.PRIMARY)
        diverted = self._accepted.total() - primary
        return f"{primary} messages accepted by the primary and {diverted} by the backlog"

    def manifests(self, health: Mapping[str, EntityHealth]) -> dict[str, EntityManifest]:
        """Return the counts and the health of each entity."""
        return {entity: self._manifest(entity, each) for entity, each in health.items()}

    def _manifest(self, entity: str, health: EntityHealth) -> EntityManifest:
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


def merge_commit_messages(messages: Sequence[TaskCommitMessage]) -> PublishManifest:
    """Merge the commit messages of a write, of which there must be at least one."""
    return PublishManifest.merge(
        (part for message in messages for part in message.entities.items()),
        run=messages[0].run,
        size_bytes=sum(message.bytes for message in messages),
        seconds=max(message.ended_at for message in messages) - min(message.started_at for message in messages),
        rejected=sum(message.rejected for message in messages),
        ledger={file: records for message in messages for file, records in message.ledger.items()},
    )


def other_spool_hosts(messages: Iterable[TaskCommitMessage]) -> list[str]:
    """Return the machines other than this one on which the spool is a folder."""
    return sorted({each.spool_host for each in messages if each.spool_host is not None} - {socket.gethostname()})


def check_failures(messages: Iterable[TaskCommitMessage]) -> None:
    """Fail the write if tasks failed for good. :raises SparkTaskError: the messages of other tasks stay sent."""
    failures = [message.failure for message in messages if message.failure is not None]
    if failures:
        more = f" (and {len(failures) - 1} more tasks)" if failures[1:] else ""
        raise SparkTaskError(f"{failures[0]}{more}")


def write_batch_manifest(folder: str, manifest: PublishManifest, *, query_id: str, batch_id: int) -> None:
    """Write the manifest of a streaming batch, which is committed by it. :raises OSError: it cannot be written."""
    content = json.dumps({**manifest.to_json(), _BATCH: batch_id}, indent=2) + "\n"
    FolderStorage(str(Path(folder)), mode=SHARED_MODE).replace(_batch_file(query_id, batch_id), content.encode())


def has_manifest(folder: str, *, query_id: str, batch_id: int) -> bool:
    """Return whether a streaming batch is committed, so that it is not sent again.

    :raises ConfigurationError: something else lies there, such as a file of another batch.
    """
    path = Path(folder) / _batch_file(query_id, batch_id)
    try:
        found = load_json(path, limit=MAX_JSON_BYTES)
        PublishManifest.from_json(found)
        batch = found[_BATCH]
    except FileNotFoundError:
        return False
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        batch = None
    if batch != batch_id:
        raise ConfigurationError(
            f"{path} is not the manifest of batch {batch_id}, by which it would count as sent: delete it"
        )
    return True


def _batch_file(query_id: str, batch_id: int) -> str:
    return f"{query_id}/{batch_id}.json"
