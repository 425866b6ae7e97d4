"""What all parts of a history know: the entities, and the record of what happened."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths, session_queue_paths
from tests.simulation.clockwork import Clockwork

HOUR: Final = 3600.0
MINUTE: Final = 60.0
QUEUES: Final = 2
BACKLOG_QUEUES: Final = backlog_queue_paths("contoso", QUEUES)
SESSION_QUEUES: Final = session_queue_paths("contoso", QUEUES)
# Entities, whether they require sessions, and the sessions sent to them.
ENTITIES: Final[dict[str, tuple[bool, tuple[str | None, ...]]]] = {
    "flights": (False, ("a", "b", None)),
    "delays": (False, ("a",)),
    "gates": (True, ("a", "b")),
}


@dataclass(slots=True)
class Outcome:
    """What happened in a history, and what should not have."""

    seed: int
    ordered: bool
    seconds: float = 0.0
    sends: int = 0
    messages: int = 0
    accepted: int = 0
    diverted: int = 0
    spooled: int = 0
    faults: int = 0
    strikes: int = 0
    kills: int = 0
    lost: int = 0
    duplicates: int = 0
    disorder: int = 0
    ordered_disorder: int = 0
    dead_lettered: int = 0
    poison: int = 0
    violations: list[str] = field(default_factory=list)
    digest: str = ""


class Record:
    """Counts, violations and the trace of one history.

    :param trace: receives a line for each thing that happens.
    """

    def __init__(self, outcome: Outcome, loop: Clockwork, *, trace: Callable[[str], None] | None) -> None:
        self.outcome = outcome
        self.ended = False
        self._loop = loop
        self._trace = trace
        self._digest = hashlib.sha256()

    def note(self, *what: Any) -> None:
        """Add a line to the trace, by whose digest two runs are compared."""
        if self.ended:
            return
        line = f"{self._loop.time():.6f} " + " ".join(map(str, what))
        self._digest.update(line.encode())
        if self._trace is not None:
            self._trace(line)

    def violate(self, what: str) -> None:
        """Note that something happened that must not."""
        self.note("VIOLATION", what)
        self.outcome.violations.append(f"at {self._loop.time():.3f} s: {what}")

    def digest(self) -> str:
        """Return the digest of the trace so far."""
        return self._digest.hexdigest()
