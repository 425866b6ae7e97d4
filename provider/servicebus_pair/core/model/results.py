"""Results of a pair's operations: frozen values, small enough for a log line or an XCom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain


@dataclass(frozen=True, slots=True)
class SendResult:
    """Result of a send: every id in ``message_ids`` was accepted by the primary or a backlog queue, or is in the spool.

    :param primary: number of messages accepted by the entity itself.
    :param diverted: number of messages accepted by backlog queues.
    :param backlog_queues: backlog queues used, in order of first use.
    :param message_ids: ids in the order of sending.
    :param primary_ids: ids that the entity itself accepted.
    :param diverted_ids: ids that a backlog queue accepted.
    :param spooled: number of messages in the spool, because neither namespace took them.
    :param spooled_ids: their ids.
    :param duplicates_possible_ids: ids that were accepted after an attempt without an answer, so that two copies may
        exist.
    """

    primary: int = 0
    diverted: int = 0
    backlog_queues: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = field(default=(), repr=False)
    primary_ids: tuple[str, ...] = field(default=(), repr=False)
    diverted_ids: tuple[str, ...] = field(default=(), repr=False)
    spooled: int = 0
    spooled_ids: tuple[str, ...] = field(default=(), repr=False)
    duplicates_possible_ids: tuple[str, ...] = field(default=(), repr=False)

    @property
    def sent(self) -> int:
        """Number of messages accepted on any route."""
        return self.primary + self.diverted + self.spooled

    @classmethod
    def total(cls, parts: Sequence[SendResult]) -> SendResult:
        """Return the combined result of several parts of one send, in order."""
        queues = chain.from_iterable(part.backlog_queues for part in parts)
        return cls(
            primary=sum(part.primary for part in parts),
            diverted=sum(part.diverted for part in parts),
            backlog_queues=tuple(dict.fromkeys(queues)),
            message_ids=tuple(chain.from_iterable(part.message_ids for part in parts)),
            primary_ids=tuple(chain.from_iterable(part.primary_ids for part in parts)),
            diverted_ids=tuple(chain.from_iterable(part.diverted_ids for part in parts)),
            spooled=sum(part.spooled for part in parts),
            spooled_ids=tuple(chain.from_iterable(part.spooled_ids for part in parts)),
            duplicates_possible_ids=tuple(chain.from_iterable(part.duplicates_possible_ids for part in parts)),
        )


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """Result of scheduling messages.

    :param sent: counts and ids by route. Diverted messages have no sequence number and cannot be cancelled: the
        entity assigns one when they leave the backlog.
    :param sequence_numbers: of the messages that the entity accepted, in the order of ``sent.primary_ids``.
    """

    sent: SendResult
    sequence_numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Drift:
    """A property of an existing backlog queue that differs from SPEC section 3."""

    queue: str
    field: str
    expected: str
    actual: str


@dataclass(frozen=True, slots=True)
class ProvisionReport:
    """Result of provisioning; ``found`` and ``created`` together are the usable queues.

    :param found: queues that existed before, drifted ones included.
    :param created: queues created by this call or a concurrent one.
    :param drifted: differing properties of existing queues, which are used unchanged.
    :param extra: queues with an index beyond the count, and session queues without ``ordering="session"``; unused and
        unchanged.
    :param failed: why each other queue cannot be used: the last error of its creation, or that it requires sessions
        although it must not, or the reverse.
    """

    found: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    drifted: tuple[Drift, ...] = ()
    extra: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """Result of a cleanup of backlog queues.

    :param deleted: queues that were empty, or whose deletion was forced.
    :param kept: message count of each queue that is not empty; these still accept messages.
    :param failed: error of each queue that could not be read or deleted.
    """

    deleted: tuple[str, ...] = ()
    kept: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DrainReport:
    """Result of a drain.

    :param moved: number of messages accepted by the primary, by entity.
    :param dead_lettered: number of messages that can never be delivered, by reason.
    :param left: number of selected messages known to remain in the backlog (destination in backoff, locked elsewhere)
        or in the spool.
    :param duplicates_possible: moved messages whose completion was not confirmed; they may be delivered again.
    :param failures: last failure of each destination or queue that is not empty, by name.
    :param unspooled: number of messages that left the spool for the primary or the backlog, by entity.
    """

    moved: Mapping[str, int] = field(default_factory=dict)
    dead_lettered: Mapping[str, int] = field(default_factory=dict)
    left: int = 0
    duplicates_possible: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)
    unspooled: Mapping[str, int] = field(default_factory=dict)

    @property
    def moved_total(self) -> int:
        """Number of messages accepted by the primary, over all entities."""
        return sum(self.moved.values())

    @property
    def empty(self) -> bool:
        """Whether no selected message is known to remain in the drained queues and the spool."""
        return not self.left and not self.failures

    def __add__(self, other: DrainReport) -> DrainReport:
        return DrainReport(
            moved=_sum(self.moved, other.moved),
            dead_lettered=_sum(self.dead_lettered, other.dead_lettered),
            left=self.left + other.left,
            duplicates_possible=self.duplicates_possible + other.duplicates_possible,
            failures={**self.failures, **other.failures},
            unspooled=_sum(self.unspooled, other.unspooled),
        )


def _sum(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + two.get(key, 0) for key in {**one, **two}}


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a syphon, with an estimate of the remaining time (SPEC section 6).

    :param moved: number of messages accepted by the primary.
    :param dead_lettered: number of messages that can never be delivered.
    :param seconds: elapsed time, pauses included.
    :param remaining: current message count of the queues, or ``None`` if it cannot be read. It may grow while the
        syphon works, so it never ends a drain.
    """

    moved: int
    dead_lettered: int
    seconds: float
    remaining: int | None = None

    @property
    def per_second(self) -> float:
        """Average number of messages per second."""
        return (self.moved + self.dead_lettered) / self.seconds if self.seconds else 0.0

    @property
    def eta_seconds(self) -> float | None:
        """Seconds until the remaining messages are moved at this rate; ``None`` if either is unknown."""
        if self.remaining is None:
            return None
        if not self.remaining:
            return 0.0
        return self.remaining / self.per_second if self.per_second else None
