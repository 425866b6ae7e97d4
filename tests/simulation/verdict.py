"""What must hold at the end of a history: nothing accepted is lost, and sessions are in order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from servicebus_emulator.engine.namespace.entities import SubQueue
from tests.simulation.clockwork import Clockwork
from tests.simulation.record import BACKLOG_QUEUES, MINUTE, SESSION_QUEUES, Record
from tests.simulation.service import Service, name_of

# Why a message that was accepted may be dead-lettered (SPEC section 6).
_ALLOWED_REASONS: Final = frozenset({"EntityNotFound", "MessageTooLarge"})
_VERDICT_TIME: Final = 2 * MINUTE


class Verdict:
    """Collects what was accepted, refused and stored, and judges it.

    :ivar accepted: names of accepted messages, in order.
    :ivar poison: names of the messages that the service rejects whatever the entity.
    :ivar rejecting_until: until when the primary rejects good messages.
    """

    def __init__(self, record: Record, loop: Clockwork) -> None:
        self.accepted: dict[str, None] = {}
        self.poison: set[str] = set()
        self.rejecting_until = 0.0
        self._record = record
        self._loop = loop
        # Dead-lettered as rejected while the primary rejected good messages: what SPEC section 4 asks for.
        self._refused_in_time: set[str] = set()
        self._set_aside: set[str] = set()
        # Dead-lettered for an allowed reason: a copy that an unconfirmed attempt stores after that is in no order.
        self._left_the_order: set[str] = set()
        self._first: dict[str, list[int]] = {}

    def account(self, given: Sequence[str], accepted: Sequence[str], unsent: Sequence[str]) -> None:
        """Note how a send ended; accepted and unsent together must be all messages."""
        if Counter(given) != Counter([*accepted, *unsent]):
            self._record.violate(f"of {given} a send accounts for {list(accepted)} and {list(unsent)}")
        for name in accepted:
            if name not in self.accepted:
                self._record.violate(f"{name} is reported as accepted, but no event said so")
            self.accept(name)

    def accept(self, name: str) -> None:
        """Note that a message was accepted."""
        self.accepted[name] = None

    def refused(self, name: str, reason: str) -> None:
        """Note that a syphon dead-lettered a message, or set it aside in the spool."""
        in_time = reason == "Rejected" and self._loop.time() < self.rejecting_until + _VERDICT_TIME
        if in_time:
            self._refused_in_time.add(name)
        if in_time or reason in _ALLOWED_REASONS:
            self._left_the_order.add(name)

    def set_aside(self, names: Sequence[str]) -> None:
        """Note that messages were set aside in the spool, because the service refused them."""
        self._record.note("set aside", *names)
        self._set_aside.update(names)
        for name in names:
            self.refused(name, "Rejected")

    def arrived(self, primary: Service, name: str) -> None:
        """Note that the primary stored a message."""
        self._record.note("primary", name)
        if primary.witness.stored[name] == 1 and name not in self._left_the_order:
            writer, _, number = name.rpartition(".")
            self._first.setdefault(writer, []).append(int(number))

    def check(self, primary: Service, secondary: Service) -> None:
        """Compare what was accepted with what the namespaces hold at the end."""
        outcome, stored = self._record.outcome, primary.witness.stored
        outcome.accepted = len(self.accepted)
        dead = _dead_letters(secondary)
        outcome.dead_lettered = len(dead)
        for name in self.accepted:
            rightly = name in self.poison or name in self._refused_in_time
            refused = (name in dead and (rightly or dead[name] in _ALLOWED_REASONS)) or (
                name in self._set_aside and rightly
            )
            if not stored[name] and not refused:
                outcome.lost += 1
                where = "set aside" if name in self._set_aside else "nowhere"
                where = f"dead-lettered as {dead[name]}" if name in dead else where
                self._record.violate(f"{name} was accepted and is {where}")
        outcome.duplicates = sum(count - 1 for count in stored.values() if count > 1)
        outcome.strikes = primary.faults.strikes + secondary.faults.strikes
        for writer, numbers in self._first.items():
            if not writer.endswith("None"):
                outcome.disorder += self.disorder(writer, numbers)
        outcome.ordered_disorder = outcome.disorder if outcome.ordered else 0

    def disorder(self, writer: str, numbers: Sequence[int]) -> int:
        """Return how many messages of a writer arrived for the first time behind later ones."""
        late, furthest = [], 0
        for number in numbers:
            if number < furthest:
                late.append(f"{number} after {furthest}")
            furthest = max(furthest, number)
        if late and self._record.outcome.ordered:
            self._record.violate(f"{writer} is out of order {len(late)} times, first {late[0]}")
        return len(late)


def _dead_letters(secondary: Service) -> dict[str, str | None]:
    return {
        name_of(message): None if message.dead_letter is None else message.dead_letter.reason
        for path in (*BACKLOG_QUEUES, *SESSION_QUEUES)
        for message in secondary.held(path, SubQueue.DEAD_LETTER)
    }
