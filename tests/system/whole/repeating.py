"""The same recovery many times in a row, in which no task has a second chance."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from servicebus_emulator import Fault, FaultKind
from tests.system.whole.backlog import PLACES
from tests.system.whole.traces import until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.system.whole.platform import Platform

__all__ = ["AT_ONCE", "Round", "rounds"]

AT_ONCE: Final = "whole_at_once"
COUNT: Final = 10
WAITING: Final = "wait_for_primary"


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one run did."""

    number: int
    state: str
    seconds: float
    tries: int  # of all its tasks together
    tasks: int
    missing: int  # messages that are not on the primary
    duplicates: int  # copies beyond the first

    @property
    def good(self) -> bool:
        """Whether every task succeeded at its first try, and every message is there once."""
        return self.state == "success" and self.tries == self.tasks and not (self.missing or self.duplicates)


def rounds(whole: Platform, *, count: int) -> Iterator[Round]:
    """Run the DAG ``whole_at_once`` so many times, each time with a backlog and during an outage."""
    served = whole.stack.primary.served
    for number in range(count):
        ids = whole.divert(f"round-{number}", count=COUNT, entities=tuple(PLACES))
        served.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR))
        began = time.monotonic()
        run = whole.api.trigger(AT_ONCE, conf={})
        until(lambda run=run: whole.api.tasks(run).get(WAITING) == "deferred", seconds=90, what="a sensor waits")  # type: ignore[misc]
        served.clear_faults()
        state = whole.wait_for_end(run)
        tries = whole.api.tries(run)
        copies = [each for entity in whole.copies(ids).values() for each in entity]
        yield Round(
            number=number,
            state=state,
            seconds=time.monotonic() - began,
            tries=sum(tries.values()),
            tasks=len(tries),
            missing=copies.count(0),
            duplicates=sum(each - 1 for each in copies if each > 1),
        )
