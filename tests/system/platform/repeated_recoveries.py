"""Repeats a recovery whose tasks have no retries."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from servicebus_emulator import Fault, FaultKind
from tests.system.platform.backlog_messages import RECEIVING_ENTITIES
from tests.system.platform.leftovers import wait_until
from tests.system.platform.platform import Platform

__all__ = ["SIMULTANEOUS_DAG", "RecoveryRun", "repeat_recovery"]

SIMULTANEOUS_DAG: Final = "recovery_simultaneous"
MESSAGES: Final = 10
WAIT_TASK: Final = "wait_for_primary"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryRun:
    """Result of one run."""

    number: int
    state: str
    seconds: float
    tries: int  # of all its tasks
    tasks: int
    missing: int  # messages missing on the primary
    duplicates: int  # copies beyond the first

    @property
    def succeeded(self) -> bool:
        """Whether every task succeeded at its first try and every message arrived once."""
        return self.state == "success" and self.tries == self.tasks and not (self.missing or self.duplicates)


def repeat_recovery(system: Platform, *, count: int) -> Iterator[RecoveryRun]:
    """Run the DAG ``recovery_simultaneous`` repeatedly, each time with a backlog and during an outage."""
    served = system.stack.primary.served
    for number in range(count):
        ids = system.divert(f"run-{number}", count=MESSAGES, entities=tuple(RECEIVING_ENTITIES))
        served.set_fault(Fault(kind=FaultKind.INTERNAL_ERROR))
        started_at = time.monotonic()
        run = system.api.trigger(SIMULTANEOUS_DAG, conf={})
        wait_until(
            lambda run=run: system.api.tasks(run).get(WAIT_TASK) == "deferred",  # type: ignore[misc]
            seconds=90,
            what="the sensor is deferred",
        )
        served.clear_faults()
        state = system.wait_for_end(run)
        tries = system.api.tries(run)
        copies = [each for entity in system.copies(ids).values() for each in entity]
        yield RecoveryRun(
            number=number,
            state=state,
            seconds=time.monotonic() - started_at,
            tries=sum(tries.values()),
            tasks=len(tries),
            missing=copies.count(0),
            duplicates=sum(each - 1 for each in copies if each > 1),
        )
