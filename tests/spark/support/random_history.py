"""Random message histories, generated from a seed, with a known outcome for each message. Pure.

Ledger records and queue contents are separate, as in reality, and the expected result is recorded while a history is
generated, not derived from the rules under test.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from random import Random

from servicebus_pair.core.ledger.incidents import Incident
from servicebus_pair.core.ledger.reconcile import Outcome, Sent, Syphoned
from servicebus_pair.core.model.events import Route

BEGAN = 1_767_225_600.0  # 2026-01-01
BODY, OTHER_BODY = b"x", b"y"
DIGEST, OTHER_DIGEST = (blake2b(body, digest_size=8).hexdigest() for body in (BODY, OTHER_BODY))
SESSIONS = ("a", "b", "c", "d")
ODD_NAMES = ('m "quoted"', "m\\back", "m <b>&amp;", "m é\u2028x", "m'")


class Fate(StrEnum):
    DIRECT = "sent to the primary"
    CHANGED = "arrived with another body"
    MOVED = "diverted and moved"
    WAITING = "waits in the backlog"
    LOST = "diverted, and in no queue"
    TAKEN = "consumed"
    TAKEN_MOVED = "consumed after its move"
    TAKEN_IN_ONE = "consumed from one subscription"
    SENT_TWICE = "sent again by a retried run"
    SENT_TWICE_KEPT_ONCE = "sent again, dropped by duplicate detection"
    MOVED_TWICE = "moved twice"
    COPIED = "copied by another client"
    HERE_AND_WAITING = "sent to the primary, and again to the backlog"
    DEAD = "dead-lettered"
    DEAD_MOVED = "dead-lettered after its move"
    DEAD_IN_BACKLOG = "dead-lettered in the backlog"
    EXPIRED = "expired"
    SCHEDULED = "scheduled"
    DEFERRED = "deferred"
    STRANGER = "not in the ledger"
    STRANGER_WAITING = "not in the ledger, in the backlog"


MOVES = {Fate.MOVED: 1, Fate.TAKEN_MOVED: 1, Fate.DEAD_MOVED: 1, Fate.MOVED_TWICE: 2}
# Outcome, duplicates, and how many of them the ledger predicts.
EXPECTED = {
    **dict.fromkeys(Fate, (Outcome.DELIVERED, 0, 0)),
    Fate.WAITING: (Outcome.WAITING, 0, 0),
    Fate.LOST: (Outcome.LOST, 0, 0),
    **dict.fromkeys((Fate.TAKEN, Fate.TAKEN_MOVED, Fate.TAKEN_IN_ONE), (Outcome.CONSUMED, 0, 0)),
    **dict.fromkeys((Fate.SENT_TWICE, Fate.MOVED_TWICE, Fate.HERE_AND_WAITING), (Outcome.DELIVERED, 1, 1)),
    Fate.COPIED: (Outcome.DELIVERED, 1, 0),
    **dict.fromkeys((Fate.DEAD, Fate.DEAD_MOVED, Fate.DEAD_IN_BACKLOG, Fate.EXPIRED), (Outcome.DEAD_LETTERED, 0, 0)),
    **dict.fromkeys((Fate.STRANGER, Fate.STRANGER_WAITING), (Outcome.UNRECORDED, 0, 0)),
}
DIVERTED = frozenset({Fate.WAITING, Fate.LOST, Fate.DEAD_IN_BACKLOG}) | MOVES.keys()
UNKNOWN = frozenset({Fate.STRANGER, Fate.STRANGER_WAITING})
# Scheduled messages have not arrived yet, and the send time of strangers is unknown.
FOLLOWED = frozenset(Fate) - UNKNOWN - {Fate.SCHEDULED}
# Sent before the others, without session.
ASIDE = frozenset({Fate.TAKEN_IN_ONE, Fate.DEAD, Fate.DEAD_MOVED, Fate.EXPIRED, Fate.DEFERRED})
IN_BACKLOG = frozenset({Fate.WAITING, Fate.DEAD_IN_BACKLOG, Fate.HERE_AND_WAITING, Fate.STRANGER_WAITING})
COPIES = {Fate.SENT_TWICE: 2, Fate.MOVED_TWICE: 2, Fate.COPIED: 2}
NOWHERE = frozenset(
    {Fate.LOST, Fate.TAKEN, Fate.TAKEN_MOVED, Fate.WAITING, Fate.DEAD_IN_BACKLOG, Fate.STRANGER_WAITING}
)
ONLY_QUEUES, ONLY_TOPICS = frozenset({Fate.SCHEDULED}), frozenset({Fate.TAKEN_IN_ONE})


@dataclass(frozen=True)
class Planted:
    """One message: its fate and its ledger records."""

    message_id: str
    fate: Fate
    session: str | None
    sent: tuple[Sent, ...]
    syphoned: tuple[Syphoned, ...]
    backlog_queue: str

    @property
    def expected(self) -> tuple[Outcome, int, int]:
        """Outcome, duplicates, and how many of them are predicted."""
        return EXPECTED[self.fate]


@dataclass(frozen=True)
class Batch:
    """Records that are written together.

    :ivar moved: whether the messages were moved out of the backlog; otherwise they were accepted.
    """

    run: str
    moved: bool
    route: Route
    queue: str | None
    at: float
    ids: tuple[str, ...]


@dataclass(frozen=True)
class History:
    """The history of one entity.

    :ivar arrivals: ids in order of arrival, after the messages set aside; copies occur twice.
    :ivar batches: in order of time.
    :ivar overtaken: pairs of a message id and the id that overtook it.
    """

    seed: int
    entity: str
    is_topic: bool
    messages: tuple[Planted, ...]
    arrivals: tuple[str, ...]
    batches: tuple[Batch, ...]
    incidents: tuple[Incident, ...]
    overtaken: frozenset[tuple[str, str]]

    @property
    def by_id(self) -> dict[str, Planted]:
        return {message.message_id: message for message in self.messages}


def history(seed: int, entity: str, *, is_topic: bool, queues: Sequence[str]) -> History:
    """Generate a history.

    :param queues: the backlog queues.
    """
    return _Generator(Random(f"history {seed}"), seed, entity, is_topic=is_topic, queues=queues).generate()  # noqa: S311  a test


@dataclass
class _Draft:
    message_id: str
    fate: Fate
    session: str | None
    backlog_queue: str
    sent: list[Sent] = field(default_factory=list)
    syphoned: list[Syphoned] = field(default_factory=list)


class _Generator:
    """Alternates groups of sends: to the primary, diverted, to the primary, ..."""

    def __init__(self, random: Random, seed: int, entity: str, *, is_topic: bool, queues: Sequence[str]) -> None:
        self.random, self.seed, self.entity, self.is_topic, self.queues = random, seed, entity, is_topic, queues
        self.now = BEGAN + 86_400.0 * seed
        self.drafts: list[_Draft] = []
        self.batches: list[Batch] = []
        self.incidents: list[Incident] = []
        self.again: list[_Draft] = []

    def generate(self) -> History:
        count = self.random.randint(1, 3)
        impossible = ONLY_QUEUES if self.is_topic else ONLY_TOPICS
        planted = [fate for fate in Fate if fate not in impossible for _ in range(self.random.randint(1, 3))]
        self.random.shuffle(planted)
        direct = [fate for fate in planted if fate not in DIVERTED] + [Fate.DIRECT] * self.random.randint(6, 20)
        diverted = [fate for fate in planted if fate in DIVERTED] + [Fate.MOVED] * self.random.randint(6, 20)
        for number in range(count + 1):
            self.send_to_primary(direct[number :: count + 1], f"publish-{number}")
            if number < count:
                self.divert(diverted[number::count], f"publish-{number}")
        if self.again:
            self.divert((), "publish-last")
        arrivals, overtaken = self.overtake(self.arriving())
        return History(
            seed=self.seed,
            entity=self.entity,
            is_topic=self.is_topic,
            messages=tuple(
                Planted(
                    each.message_id, each.fate, each.session, tuple(each.sent), tuple(each.syphoned), each.backlog_queue
                )
                for each in self.drafts
            ),
            arrivals=tuple(arrivals),
            batches=tuple(sorted(self.batches, key=lambda batch: batch.at)),
            incidents=tuple(self.incidents),
            overtaken=frozenset(overtaken),
        )

    def tick(self, least: float = 0.5, most: float = 3.0) -> float:
        self.now = round(self.now + self.random.uniform(least, most), 3)
        return self.now

    def draft(self, fate: Fate) -> _Draft:
        number = len(self.drafts)
        name = f"{self.random.choice(ODD_NAMES)}-{number}" if number % 9 == 0 else f"m-{number}"
        # Most have a session, so that there is an order to violate.
        session = None if fate in ASIDE else self.random.choice([*SESSIONS, None])
        made = _Draft(name, fate, session, self.random.choice(self.queues))
        self.drafts.append(made)
        return made

    def send_to_primary(self, fates: Sequence[Fate], run: str) -> None:
        self.tick(100, 200)
        self.accept([self.draft(Fate.DIRECT)], Route.PRIMARY, run)
        self.tick(100, 200)
        for part in self.cut(fates):
            drafts = [self.draft(fate) for fate in part]
            self.accept([each for each in drafts if each.fate not in UNKNOWN], Route.PRIMARY, run)
            twice = (Fate.SENT_TWICE, Fate.SENT_TWICE_KEPT_ONCE)
            self.accept([each for each in drafts if each.fate in twice], Route.PRIMARY, f"{run}-again")
            self.again += [each for each in drafts if each.fate is Fate.HERE_AND_WAITING]

    def divert(self, fates: Sequence[Fate], run: str) -> None:
        """Add an incident with a pause in it, and a process that still reaches the primary."""
        began = self.tick()
        self.accept([self.draft(Fate.MOVED)], Route.BACKLOG, run, at=began)
        self.tick(200, 300)
        for part in ([Fate.MOVED], *self.cut(fates)):
            drafts = [self.draft(fate) for fate in part]
            self.accept(drafts, Route.BACKLOG, run)
        self.accept([self.draft(Fate.DIRECT)], Route.PRIMARY, f"{run}-other")
        # A rerun during the outage diverts messages that the primary had accepted.
        self.accept(self.again, Route.BACKLOG, f"{run}-again")
        self.again = []
        ended = self.tick()
        self.accept([self.draft(Fate.MOVED)], Route.BACKLOG, run, at=ended)
        self.incidents.append(Incident(len(self.incidents) + 1, began, ended))

    def cut(self, fates: Sequence[Fate]) -> Iterator[Sequence[Fate]]:
        remaining = list(fates)
        while remaining:
            size = self.random.randint(1, 4)
            yield remaining[:size]
            remaining = remaining[size:]

    def accept(self, drafts: Sequence[_Draft], route: Route, run: str, *, at: float | None = None) -> None:
        """Add the ledger records of accepted messages by queue, and those of their moves."""
        # Each queue confirms its part at its own time; within a batch, messages keep their order.
        for queue in sorted({each.backlog_queue for each in drafts}) if route is Route.BACKLOG else (None,):
            part = [each for each in drafts if queue in (None, each.backlog_queue)]
            accepted_at = self.tick() if at is None else at
            self.batches.append(Batch(run, False, route, queue, accepted_at, tuple(each.message_id for each in part)))  # noqa: FBT003
            for each in part:
                each.sent.append(Sent(route, accepted_at, queue, run, DIGEST))
                for _ in range(MOVES.get(each.fate, 0)):
                    self.move(each, after=accepted_at)

    def move(self, draft: _Draft, *, after: float) -> None:
        # From a tenth of a second to eleven days.
        at = round(after + 10 ** self.random.uniform(-1, 6), 3)
        queue = draft.backlog_queue
        draft.syphoned.append(Syphoned(at, queue))
        self.batches.append(Batch("drain", True, Route.PRIMARY, queue, at, (draft.message_id,)))  # noqa: FBT003

    def arriving(self) -> list[str]:
        """Return ids in order of acceptance, second copies at the end."""
        known = sorted(
            (each for each in self.drafts if each.fate not in ASIDE | NOWHERE),
            key=lambda each: each.sent[0].at if each.sent else BEGAN,
        )
        return [each.message_id for each in known] + [each.message_id for each in known if COPIES.get(each.fate, 1) > 1]

    def overtake(self, arrivals: list[str]) -> tuple[list[str], set[tuple[str, str]]]:
        """Reorder some messages of some sessions."""
        overtaken: set[tuple[str, str]] = set()
        drafts = {each.message_id: each for each in self.drafts}
        order = list(arrivals)
        for session in self.random.sample(SESSIONS, 2):
            first = {each: index for index, each in reversed(list(enumerate(order)))}
            line = sorted(
                (each for each in first if drafts[each].session == session and drafts[each].fate in FOLLOWED),
                key=first.__getitem__,
            )
            block, others = self.random.randint(1, 3), self.random.randint(1, 3)
            if len(line) < block + others:
                continue
            start = self.random.randint(0, len(line) - block - others)
            late, early = line[start : start + block], line[start + block : start + block + others]
            spots = [first[each] for each in line[start : start + block + others]]
            for spot, each in zip(spots, early + late, strict=True):
                order[spot] = each
            overtaken |= {(each, early[-1]) for each in late}
        return order, overtaken
