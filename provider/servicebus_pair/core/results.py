"""What the pair's operations answer: frozen values, small enough for a log line or an XCom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

__all__ = ["CleanupReport", "DrainReport", "Drift", "ProvisionReport", "ScheduleResult", "SendResult"]


@dataclass(frozen=True, slots=True)
class SendResult:
    """What one send did: every id in ``message_ids`` was accepted by the primary or a backlog queue.

    :param primary: messages accepted by the entity itself.
    :param diverted: messages accepted by backlog queues.
    :param backlog_queues: the backlog queues used, in the order of first use.
    :param message_ids: ids in the order of sending.
    :param primary_ids: those of them that the entity itself accepted.
    :param diverted_ids: those of them that a backlog queue accepted.
    """

    primary: int = 0
    diverted: int = 0
    backlog_queues: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = field(default=(), repr=False)
    primary_ids: tuple[str, ...] = field(default=(), repr=False)
    diverted_ids: tuple[str, ...] = field(default=(), repr=False)

    @property
    def sent(self) -> int:
        """Messages accepted on either route."""
        return self.primary + self.diverted

    @classmethod
    def total(cls, parts: Sequence[SendResult]) -> SendResult:
        """Answer what several parts of one send did together, in their order."""
        if len(parts) == 1:
            return parts[0]
        queues = chain.from_iterable(part.backlog_queues for part in parts)
        return cls(
            primary=sum(part.primary for part in parts),
            diverted=sum(part.diverted for part in parts),
            backlog_queues=tuple(dict.fromkeys(queues)),
            message_ids=tuple(chain.from_iterable(part.message_ids for part in parts)),
            primary_ids=tuple(chain.from_iterable(part.primary_ids for part in parts)),
            diverted_ids=tuple(chain.from_iterable(part.diverted_ids for part in parts)),
        )


@dataclass(frozen=True, slots=True)
class ScheduleResult:
    """What one scheduling did.

    :param sent: counts and ids by route. What was diverted has no sequence number yet and cannot be
        cancelled: the entity gives one when the message leaves the backlog.
    :param sequence_numbers: of what the entity itself accepted, in the order of ``sent.primary_ids``.
    """

    sent: SendResult
    sequence_numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Drift:
    """One field of an existing backlog queue that differs from the description of SPEC section 3."""

    queue: str
    field: str
    expected: str
    actual: str


@dataclass(frozen=True, slots=True)
class ProvisionReport:
    """What provisioning saw and did; ``found`` and ``created`` together are the usable queues.

    :param found: existed before, with the right description or not.
    :param created: made by this call, or by a concurrent one.
    :param drifted: differing fields of existing queues, which are used as they are.
    :param extra: queues with an index beyond the count; left alone and unused.
    :param failed: queues that could not be created, with the last error.
    """

    found: tuple[str, ...] = ()
    created: tuple[str, ...] = ()
    drifted: tuple[Drift, ...] = ()
    extra: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CleanupReport:
    """What a cleanup of backlog queues did.

    :param deleted: they were empty, or deletion was forced.
    :param kept: queues that hold messages, with how many; they take messages as before.
    :param failed: queues that could not be looked at or deleted, with the error.
    """

    deleted: tuple[str, ...] = ()
    kept: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DrainReport:
    """What one drain did.

    :param moved: messages confirmed by the primary, by entity.
    :param dead_lettered: messages that can never be delivered, by reason.
    :param left: messages known to be still in a backlog queue (resting destination, locked elsewhere); those
        that were not asked for are not counted.
    :param duplicates_possible: moved messages whose completion was not confirmed; they may come again.
    :param failures: last failure of each destination or queue that is not empty, by name.
    """

    moved: Mapping[str, int] = field(default_factory=dict)
    dead_lettered: Mapping[str, int] = field(default_factory=dict)
    left: int = 0
    duplicates_possible: int = 0
    failures: Mapping[str, str] = field(default_factory=dict)

    @property
    def moved_total(self) -> int:
        """Messages confirmed by the primary, over all entities."""
        return sum(self.moved.values())

    @property
    def empty(self) -> bool:
        """True when nothing of what was asked for is known to be left in the drained queues."""
        return self.left == 0 and not self.failures

    def __add__(self, other: DrainReport) -> DrainReport:
        return DrainReport(
            moved=_sum(self.moved, other.moved),
            dead_lettered=_sum(self.dead_lettered, other.dead_lettered),
            left=self.left + other.left,
            duplicates_possible=self.duplicates_possible + other.duplicates_possible,
            failures={**self.failures, **other.failures},
        )


def _sum(one: Mapping[str, int], two: Mapping[str, int]) -> dict[str, int]:
    return {key: one.get(key, 0) + two.get(key, 0) for key in {**one, **two}}
