"""What became of every message: by id and content, from the queues themselves, and whether the ledger says the same."""

from __future__ import annotations

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeAlias

from azure.servicebus import ServiceBusReceivedMessage

from servicebus_pair.core.backlog import backlog_queues
from servicebus_pair.core.envelope import PATH
from servicebus_pair.core.events import Route
from servicebus_pair.core.reconcile import Found, History, Location, Sent, Syphoned, Totals
from servicebus_pair.core.reconcile import judge as reconcile
from tests.core.peeking import peek_all
from tests.system.chaos.load import DETECTING, ENTITIES, is_as_sent, recorded
from tests.system.chaos.worker import LEDGERS, QUEUES

__all__ = ["Stock", "Verdict", "judge", "take_stock"]

_DEAD = frozenset({Location.DEAD_LETTER, Location.BACKLOG_DEAD_LETTER})
Name: TypeAlias = tuple[str, str]
"""Entity and message id."""


@dataclass(frozen=True, slots=True)
class Stock:
    """What all queues hold.

    :ivar found: every copy, by entity and id.
    :ivar damaged: how many are not as they were sent.
    """

    found: Mapping[Name, list[Found]]
    damaged: int

    def copies(self, name: Name) -> int:
        """Answer how many copies reached the entity."""
        return sum(each.location is Location.ACTIVE for each in self.found.get(name, ()))

    @property
    def stuck(self) -> int:
        """How many copies are somewhere else."""
        return sum(each.location is not Location.ACTIVE for copies in self.found.values() for each in copies)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The last line of a run.

    :ivar sent: messages that their senders know to be accepted.
    :ivar unrecorded: messages found whose sender died before it could say so.
    :ivar lost: accepted, and in no queue; must be 0.
    :ivar damaged: found with another body or other properties than they were sent with; must be 0.
    :ivar stuck: still in a backlog queue or a dead-letter queue; must be 0.
    :ivar duplicates: copies too many, where nothing detects them.
    :ivar duplicates_after_detection: the same on the entity with duplicate detection; must be 0.
    :ivar missing_in_ledger: accepted, and the ledger does not know it; must be 0.
    :ivar ledger: what the reconciliation of the ledger with the queues counts, which must agree.
    :ivar deeds: what was done to whom, and how often.
    """

    seconds: float
    seed: int
    sent: int
    unrecorded: int
    kills: int
    faults: int
    ended_by_themselves: int
    lost: int
    damaged: int
    stuck: int
    duplicates: int
    duplicates_after_detection: int
    missing_in_ledger: int
    ledger: Totals
    deeds: Mapping[str, int]

    @property
    def ledger_agrees(self) -> bool:
        """Whether the ledger, reconciled, tells the same as the queues."""
        return self.missing_in_ledger == 0 and (self.ledger.lost, self.ledger.duplicates) == (
            self.lost,
            self.duplicates + self.duplicates_after_detection,
        )

    @property
    def holds(self) -> bool:
        return self.ledger_agrees and not (
            self.lost or self.damaged or self.stuck or self.duplicates_after_detection or self.ended_by_themselves
        )

    def as_json(self) -> dict[str, object]:
        ledger = {name: value for name, value in asdict(self.ledger).items() if value}
        return {**asdict(self), "ledger": ledger, "ledger_agrees": self.ledger_agrees, "holds": self.holds}


async def take_stock(primary: str, secondary: str) -> Stock:
    """Look through every queue and dead-letter queue of both namespaces, by their connection strings."""
    places = [
        *((primary, entity, Location.ACTIVE) for entity in ENTITIES),
        *((primary, entity, Location.DEAD_LETTER) for entity in ENTITIES),
        *((secondary, queue, Location.BACKLOG) for queue in backlog_queues("contoso", QUEUES)),
        *((secondary, queue, Location.BACKLOG_DEAD_LETTER) for queue in backlog_queues("contoso", QUEUES)),
    ]
    found: defaultdict[Name, list[Found]] = defaultdict(list)
    damaged = 0
    held = await asyncio.gather(
        *(peek_all(namespace, path, dead_letter=location in _DEAD) for namespace, path, location in places)
    )
    for (namespace, path, location), messages in zip(places, held, strict=True):
        for message in messages:
            entity = path if namespace == primary else _destination(message)
            found[entity, message.message_id or ""].append(Found(path, location))
            damaged += namespace == primary and not is_as_sent(message)
    return Stock(found, damaged)


def judge(stock: Stock, folder: Path, *, done: Counter[str], seconds: float, seed: int) -> Verdict:
    """Compare what is there with what the senders wrote down, and with the ledger.

    :param done: what was done to whom.
    """
    sent = set(recorded(folder))
    ledger = _read_ledger(folder / LEDGERS)
    extra: Counter[str] = Counter()
    for entity, name in stock.found:
        extra[entity] += max(0, len(stock.found[entity, name]) - 1)
    return Verdict(
        seconds=round(seconds, 1),
        seed=seed,
        sent=len(sent),
        unrecorded=len(stock.found.keys() - sent),
        kills=done["kills"],
        faults=done["faults"],
        ended_by_themselves=done["ended"],
        lost=len(sent - stock.found.keys()),
        damaged=stock.damaged,
        stuck=stock.stuck,
        duplicates=sum(count for entity, count in extra.items() if entity != DETECTING),
        duplicates_after_detection=extra[DETECTING],
        missing_in_ledger=sum(not ledger[name].sent if name in ledger else True for name in sent),
        ledger=_reconciled(stock, ledger),
        deeds=dict(sorted(done.items())),
    )


@dataclass(slots=True)
class _Records:
    sent: list[Sent]
    syphoned: list[Syphoned]


def _read_ledger(folder: Path) -> dict[Name, _Records]:
    records: dict[Name, _Records] = {}
    for line in _lines(folder):
        known = records.setdefault((line["entity"], line["id"]), _Records([], []))
        if line["kind"] == "sent":
            known.sent.append(Sent(Route(line["route"]), line["at"], line["queue"]))
        else:
            known.syphoned.append(Syphoned(line["at"], line["queue"]))
    return records


def _lines(folder: Path) -> Iterator[dict[str, Any]]:
    for path in folder.glob("*.jsonl"):
        for line in path.read_bytes().splitlines(keepends=True):
            # A line without an end was being written when its process was killed.
            if line.endswith(b"\n"):
                yield json.loads(line)


def _reconciled(stock: Stock, ledger: Mapping[Name, _Records]) -> Totals:
    nothing = _Records([], [])
    totals = Totals()
    for entity in ENTITIES:
        names = {name for name in (*stock.found, *ledger) if name[0] == entity}
        histories = (
            History(
                name[1],
                entity,
                sent=tuple(ledger.get(name, nothing).sent),
                syphoned=tuple(ledger.get(name, nothing).syphoned),
                found=tuple(stock.found.get(name, ())),
            )
            for name in names
        )
        totals += Totals.of_all(reconcile(history, places=[entity]) for history in histories)
    return totals


def _destination(message: ServiceBusReceivedMessage) -> str:
    value = (message.application_properties or {}).get(PATH.encode())
    return value.decode() if isinstance(value, bytes) else str(value)
