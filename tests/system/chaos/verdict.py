"""What became of every message: by id and content, from the queues themselves."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path

from servicebus_pair.core.backlog import backlog_queues
from tests.core.peeking import peek_all
from tests.system.chaos.actors import Actors
from tests.system.chaos.load import DETECTING, ENTITIES, body_of, recorded
from tests.system.chaos.worker import QUEUES

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """The last line of a run.

    :ivar sent: messages that their senders know to be accepted.
    :ivar unrecorded: messages found whose sender died before it could say so.
    :ivar lost: accepted, and in no queue; must be 0.
    :ivar damaged: found with another body than they were sent with; must be 0.
    :ivar stuck: still in a backlog queue or a dead-letter queue; must be 0.
    :ivar duplicates: copies too many, where nothing detects them.
    :ivar duplicates_after_detection: the same on the entity with duplicate detection; must be 0.
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

    @property
    def holds(self) -> bool:
        return not (
            self.lost or self.damaged or self.stuck or self.duplicates_after_detection or self.ended_by_themselves
        )

    def as_json(self) -> dict[str, object]:
        return {**asdict(self), "holds": self.holds}


async def judge(actors: Actors, folder: Path, *, seconds: float, seed: int) -> Verdict:
    sent = set(recorded(folder))
    found: Counter[tuple[str, str]] = Counter()
    damaged = stuck = 0
    for entity in ENTITIES:
        for message in await peek_all(actors.primary.connection_string, entity):
            name = message.message_id or ""
            found[entity, name] += 1
            damaged += b"".join(message.body) != body_of(name)
        stuck += len(await peek_all(actors.primary.connection_string, entity, dead_letter=True))
    for queue in backlog_queues("contoso", QUEUES):
        for dead_letter in (False, True):
            stuck += len(await peek_all(actors.secondary.connection_string, queue, dead_letter=dead_letter))
    extra: Counter[str] = Counter()
    for (entity, _), copies in found.items():
        extra[entity] += copies - 1
    return Verdict(
        seconds=round(seconds, 1),
        seed=seed,
        sent=len(sent),
        unrecorded=len(found.keys() - sent),
        kills=actors.done["kills"],
        faults=actors.done["faults"],
        ended_by_themselves=actors.done["ended"],
        lost=len(sent - found.keys()),
        damaged=damaged,
        stuck=stuck,
        duplicates=sum(count for entity, count in extra.items() if entity != DETECTING),
        duplicates_after_detection=extra[DETECTING],
    )
