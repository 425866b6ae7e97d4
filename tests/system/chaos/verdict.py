"""Compares the contents of all queues with what the senders recorded and with the ledger."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeAlias

from azure.servicebus import ServiceBusReceivedMessage

from servicebus_pair.core.ledger.reader import read_records
from servicebus_pair.core.ledger.reconcile import Found, History, Location, Sent, Syphoned, classify
from servicebus_pair.core.ledger.totals import Totals
from servicebus_pair.core.model.events import Route
from servicebus_pair.core.protocol.backlog_properties import PATH
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths
from tests.core.support.queues import peek_all
from tests.system.chaos.messages import DEDUPLICATED, ENTITIES, is_unchanged, read_journals, session_of
from tests.system.chaos.worker import LEDGERS, QUEUES

_DEAD_LETTER = frozenset({Location.DEAD_LETTER, Location.BACKLOG_DEAD_LETTER})
Key: TypeAlias = tuple[str, str]
"""Entity and message id."""


@dataclass(frozen=True, slots=True)
class QueueContents:
    """The messages in all queues.

    :ivar found: every copy of each message.
    :ivar damaged: number of copies whose content changed.
    """

    found: Mapping[Key, list[Found]]
    damaged: int

    @property
    def stuck(self) -> int:
        return sum(each.location is not Location.ACTIVE for copies in self.found.values() for each in copies)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a run.

    :ivar sent: messages that their senders know to be accepted.
    :ivar unrecorded: messages found whose sender was killed before it recorded them.
    :ivar crashes: workers that exited on their own; must be 0.
    :ivar lost: accepted messages that are in no queue; must be 0.
    :ivar damaged: copies with another body or other properties; must be 0.
    :ivar stuck: copies in a backlog or dead-letter queue, or in the spool; must be 0.
    :ivar disorder: accepted messages of a sender that first arrived after a later one of their session; must be 0 in
        session order.
    :ivar duplicates: additional copies on entities without duplicate detection.
    :ivar duplicates_after_detection: additional copies on the entity with duplicate detection; must be 0.
    :ivar spooled: messages that went through the spool.
    :ivar missing_in_ledger: accepted messages without a ledger record; must be 0.
    :ivar ledger: the reconciliation of the ledger with the queues, which must agree.
    :ivar actions: number of kills and faults, in total and by target.
    """

    seconds: float
    seed: int
    sent: int
    unrecorded: int
    kills: int
    faults: int
    crashes: int
    lost: int
    damaged: int
    stuck: int
    disorder: int
    duplicates: int
    duplicates_after_detection: int
    spooled: int
    missing_in_ledger: int
    ledger: Totals
    actions: Mapping[str, int]
    ordering: str = "none"

    @property
    def ledger_agrees(self) -> bool:
        """Whether the reconciled ledger has the same result as the queues."""
        duplicates = self.duplicates + self.duplicates_after_detection
        # Nothing receives in a run: what the ledger would call consumed is lost.
        lost = self.ledger.lost + self.ledger.consumed
        return self.missing_in_ledger == 0 and (lost, self.ledger.duplicates) == (self.lost, duplicates)

    @property
    def holds(self) -> bool:
        out_of_order = self.disorder and self.ordering == "session"
        return self.ledger_agrees and not (
            out_of_order or self.lost or self.damaged or self.stuck or self.duplicates_after_detection or self.crashes
        )

    def as_json(self) -> dict[str, object]:
        ledger = {name: value for name, value in asdict(self.ledger).items() if value}
        return {**asdict(self), "ledger": ledger, "ledger_agrees": self.ledger_agrees, "holds": self.holds}


async def peek_queues(primary: str, secondary: str) -> QueueContents:
    """Peek every queue and dead-letter queue of both namespaces, given their connection strings."""
    backlog = backlog_queue_paths("contoso", QUEUES)
    queues = [
        *((primary, entity, Location.ACTIVE) for entity in ENTITIES),
        *((primary, entity, Location.DEAD_LETTER) for entity in ENTITIES),
        *((secondary, queue, Location.BACKLOG) for queue in backlog),
        *((secondary, queue, Location.BACKLOG_DEAD_LETTER) for queue in backlog),
    ]
    found: defaultdict[Key, list[Found]] = defaultdict(list)
    damaged = 0
    peeked = await asyncio.gather(
        *(peek_all(namespace, path, dead_letter=location in _DEAD_LETTER) for namespace, path, location in queues)
    )
    for (namespace, path, location), messages in zip(queues, peeked, strict=True):
        for message in messages:
            entity = path if namespace == primary else _destination(message)
            found[entity, message.message_id or ""].append(Found(path, location))
            damaged += namespace == primary and not is_unchanged(message)
    return QueueContents(found, damaged)


def verdict_on(
    contents: QueueContents,
    folder: Path,
    *,
    actions: Counter[str],
    seconds: float,
    seed: int,
    ordering: str = "none",
    elsewhere: int = 0,
) -> Verdict:
    """Compare the queues with the journals and the ledger in ``folder``.

    :param elsewhere: messages left in backlog queues that require sessions, or in the spool.
    """
    sent = set(read_journals(folder))
    ledger = read_ledger(folder / LEDGERS)
    extra: Counter[str] = Counter()
    for (entity, _), copies in contents.found.items():
        extra[entity] += len(copies) - 1
    return Verdict(
        seconds=round(seconds, 1),
        seed=seed,
        sent=len(sent),
        unrecorded=len(contents.found.keys() - sent),
        kills=actions["kills"],
        faults=actions["faults"],
        crashes=actions["crashes"],
        lost=len(sent - contents.found.keys()),
        damaged=contents.damaged,
        stuck=contents.stuck + elsewhere,
        disorder=_disorder(contents, sent),
        duplicates=sum(count for entity, count in extra.items() if entity != DEDUPLICATED),
        duplicates_after_detection=extra[DEDUPLICATED],
        spooled=sum(any(each.route is Route.SPOOLED for each in records.sent) for records in ledger.values()),
        missing_in_ledger=sum(key not in ledger or not ledger[key].sent for key in sent),
        ledger=_reconcile(contents, ledger),
        actions=dict(sorted(actions.items())),
        ordering=ordering,
    )


def _disorder(contents: QueueContents, sent: AbstractSet[Key]) -> int:
    """Count accepted messages that first arrived after a later message of the same sender and session."""
    latest: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    late = 0
    # The queues of the primary were peeked in order, and stand first.
    for entity, message_id in contents.found:
        if (entity, message_id) not in sent:
            continue
        sender, _, number = message_id.rpartition(".")
        lane = entity, sender, session_of(message_id)
        late += int(number) < latest[lane]
        latest[lane] = max(latest[lane], int(number))
    return late


@dataclass(slots=True)
class LedgerRecords:
    sent: list[Sent] = field(default_factory=list)
    syphoned: list[Syphoned] = field(default_factory=list)


def read_ledger(folder: Path) -> dict[Key, LedgerRecords]:
    records: defaultdict[Key, LedgerRecords] = defaultdict(LedgerRecords)
    for record in read_records(folder):
        if record is None:
            continue  # truncated when its writer was killed
        of_message = records[record.entity, record.message_id]
        if record.kind == "sent":
            of_message.sent.append(Sent(Route(record.route), record.at, record.queue, spool=record.spool))
        else:
            moved = Syphoned(record.at, record.queue or "", Route(record.route), record.spool)
            of_message.syphoned.append(moved)
    return dict(records)


def _reconcile(contents: QueueContents, ledger: Mapping[Key, LedgerRecords]) -> Totals:
    empty = LedgerRecords()
    # All workers share one spool, which is empty at the end.
    spools = {each.spool or "" for records in ledger.values() for each in records.sent if each.spool is not None}
    histories = (
        History(
            message_id,
            entity,
            sent=tuple(ledger.get((entity, message_id), empty).sent),
            syphoned=tuple(ledger.get((entity, message_id), empty).syphoned),
            found=tuple(contents.found.get((entity, message_id), ())),
        )
        for entity, message_id in contents.found.keys() | ledger.keys()
        if entity in ENTITIES
    )
    return Totals.of_all(
        classify(history, receiving_entities=[history.entity], examined_spools=spools) for history in histories
    )


def _destination(message: ServiceBusReceivedMessage) -> str:
    value = (message.application_properties or {}).get(PATH.encode())
    return value.decode() if isinstance(value, bytes) else str(value)
