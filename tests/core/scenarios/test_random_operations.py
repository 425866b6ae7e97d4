"""Random operations and faults in random order lose no accepted message (SPEC section 1).

Random sequences of sends by several processes that share a health store, faults, pings, manual
failovers, syphons that are stopped, cancelled, frozen and killed in the middle, and clocks that jump, over
two embedded namespaces and the real SDK, in simulated time (``simulated``). What must hold all the time
is watched in the engines of the namespaces (``support.simulation``). A longer run:
``PAIR_MODEL_EXAMPLES=1000 pytest tests/core/scenarios/test_random_operations.py -m slow --timeout 0``.
"""

from __future__ import annotations

import gc
import logging
import os
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from servicebus_emulator import Fault, FaultKind, Operation
from tests.core.support.simulation import ENTITIES, QUEUES, Simulation, Worker
from tests.examples import how_many

MANY = int(os.environ.get("PAIR_MODEL_EXAMPLES", "60"))
PROCESSES = ("p", "q")
processes, entities, sessions = st.sampled_from(PROCESSES), st.sampled_from(ENTITIES), st.sampled_from("ab")
counts, few = st.integers(1, 30), st.integers(1, 4)
# Within an AMQP exchange, within a call, within an interval, and beyond it.
pauses = st.sampled_from([0.0, 0.005, 0.015, 0.03, 0.1, 0.5, 1.5])
MOST_SYPHONS = 3
LARGE = 100_000


def struck(kind: FaultKind, on: Operation, **more: Any) -> st.SearchStrategy[Fault]:
    return st.builds(lambda count: Fault(kind=kind, on=(on,), count=count, **more), few)


def lasting(kind: FaultKind, *on: Operation, **more: Any) -> st.SearchStrategy[Fault]:
    return st.builds(
        lambda duration: Fault(kind=kind, on=on, duration=duration, **more), st.sampled_from([0.5, 2.0, 8.0])
    )


ANYWHERE = [
    struck(FaultKind.RESET, Operation.SEND),
    struck(FaultKind.RELEASED, Operation.SEND),
    struck(FaultKind.MODIFIED, Operation.SEND),
    struck(FaultKind.SERVER_BUSY, Operation.SEND),
    struck(FaultKind.ENTITY_DISABLED, Operation.SEND),
    struck(FaultKind.QUOTA_EXCEEDED, Operation.SEND),
    struck(FaultKind.CLOSE_LINK, Operation.SEND),
    struck(FaultKind.CLOSE_CONNECTION, Operation.SEND),
    struck(FaultKind.NO_DISPOSITION, Operation.SEND),
    struck(FaultKind.LATE_DISPOSITION, Operation.SEND, delay=3.0),
    struck(FaultKind.DUPLICATE, Operation.SEND),
    lasting(FaultKind.INTERNAL_ERROR, Operation.SEND),
    lasting(FaultKind.AUTH_FAILURE),
    lasting(FaultKind.REFUSE),
    lasting(FaultKind.FREEZE),
    lasting(FaultKind.LATENCY, delay=0.3),
]
OUTAGES = [
    FaultKind.INTERNAL_ERROR,
    FaultKind.NO_DISPOSITION,
    FaultKind.RELEASED,
    FaultKind.RESET,
    FaultKind.CLOSE_LINK,
]
primary_faults = st.one_of(ANYWHERE)
outages = st.one_of(
    [
        *(st.just(Fault(kind=kind, on=(Operation.SEND,), duration=4.0)) for kind in OUTAGES),
        *(st.just(Fault(kind=kind, duration=4.0)) for kind in (FaultKind.REFUSE, FaultKind.FREEZE)),
    ]
)
secondary_faults = st.one_of(
    [
        *ANYWHERE,
        struck(FaultKind.RESET, Operation.SETTLE),
        struck(FaultKind.RESET, Operation.RECEIVE),
        struck(FaultKind.LOCK_LOST, Operation.SETTLE),
        struck(FaultKind.DUPLICATE, Operation.SETTLE),
        struck(FaultKind.NO_DISPOSITION, Operation.SETTLE),
        struck(FaultKind.SERVER_BUSY, Operation.SETTLE),
    ]
)


class PairMachine(RuleBasedStateMachine):
    """The possible operations; ``Simulation.check_final_state`` checks the outcome."""

    world: Simulation
    workers: dict[str, Worker]

    @initialize(ordered=st.booleans(), shared=st.booleans(), seed=st.integers(0, 9))
    def begin(self, ordered: bool, shared: bool, seed: int) -> None:
        self.world = Simulation(ordered=ordered, shared=shared, seed=seed)
        self.workers = {name: self.world.add_worker(name) for name in PROCESSES}

    @property
    def syphons(self) -> list[Worker]:
        return [worker for worker in self.workers.values() for _ in worker.syphons]

    @rule(process=processes, entity=entities, session=sessions, count=counts, pause=pauses)
    def send(self, process: str, entity: str, session: str, count: int, pause: float) -> None:
        self.workers[process].send(entity, session, count)
        self.world.pass_time(pause)

    @rule(process=processes, entity=entities, count=few, pause=pauses, diverted=st.booleans())
    def send_more_than_a_batch_takes(self, process: str, entity: str, count: int, pause: float, diverted: bool) -> None:
        if diverted:
            self.workers[process].by_hand(lambda pair: pair.fail_over(entity, reason="the model"))
        self.workers[process].send(entity, "a", count + 1, size=LARGE)
        self.world.pass_time(pause)

    @rule(process=processes, fault=outages, count=counts, seconds=st.sampled_from([0.3, 1.05, 2.5]))
    def send_into_an_outage(self, process: str, fault: Fault, count: int, seconds: float) -> None:
        """Into, through and beyond the failover interval."""
        self.world.inject_fault(self.world.primary, fault)
        for entity in ENTITIES:
            for session in "ab":
                self.workers[process].send(entity, session, count)
        self.world.pass_time(seconds)

    @rule(process=processes, entity=entities, fault=primary_faults, forever=st.booleans(), pause=pauses)
    def drain_while_the_primary_breaks(
        self, process: str, entity: str, fault: Fault, forever: bool, pause: float
    ) -> None:
        self.fail_over(process, entity, "a", 9)
        self.world.pass_time(0.4)
        self.world.inject_fault(self.world.primary, fault)
        for worker in self.workers.values():
            if len(self.syphons) < MOST_SYPHONS:
                worker.start_syphon(forever=forever)
        self.world.pass_time(pause)

    @precondition(lambda self: not self.world.ordered)
    @rule(process=processes, entity=entities, count=few, after=st.sampled_from([0.5, 100.0]))
    def schedule(self, process: str, entity: str, count: int, after: float) -> None:
        self.workers[process].send(entity, "s", count, scheduled=after)

    @rule(process=processes, entity=entities, session=sessions, counts=st.lists(few, min_size=3, max_size=6))
    def send_in_a_row(self, process: str, entity: str, session: str, counts: list[int]) -> None:
        for count in counts:
            self.workers[process].send(entity, session, count)
            self.world.pass_time(0.25)

    @rule(process=processes, entity=entities, count=counts, pause=pauses)
    def cancel_send(self, process: str, entity: str, count: int, pause: float) -> None:
        self.workers[process].send(entity, "a", count)
        self.world.pass_time(pause)
        self.workers[process].cancel_send(entity)

    @rule(seconds=pauses)
    def wait(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(fault=primary_faults, pause=pauses)
    def break_primary(self, fault: Fault, pause: float) -> None:
        self.world.inject_fault(self.world.primary, fault)
        self.world.pass_time(pause)

    @rule(fault=secondary_faults, pause=pauses)
    def break_secondary(self, fault: Fault, pause: float) -> None:
        self.world.inject_fault(self.world.secondary, fault)
        self.world.pass_time(pause)

    @rule(process=processes, entity=entities, queue=st.sampled_from(QUEUES), count=counts, pause=pauses)
    def divert_while_a_backlog_queue_breaks(
        self, process: str, entity: str, queue: str, count: int, pause: float
    ) -> None:
        self.fail_over(process, entity, "a", count)
        self.world.pass_time(0.3)
        refused = Fault(kind=FaultKind.INTERNAL_ERROR, on=(Operation.SEND,), entity=queue, duration=2.0)
        self.world.inject_fault(self.world.secondary, refused)
        self.workers[process].send(entity, "a", count)
        self.world.pass_time(pause)

    @rule()
    def clear_faults(self) -> None:
        self.world.clear_faults()

    @rule(process=processes, entity=entities, pause=pauses)
    def ping(self, process: str, entity: str, pause: float) -> None:
        self.workers[process].ping(entity)
        self.world.pass_time(pause)

    @rule(process=processes, entity=entities, session=sessions, count=counts)
    def fail_over(self, process: str, entity: str, session: str, count: int) -> None:
        self.workers[process].by_hand(lambda pair: pair.fail_over(entity, reason="the model"))
        self.workers[process].send(entity, session, count)

    @precondition(lambda self: not self.world.ordered)  # after a manual change, order is up to the caller
    @rule(process=processes, entity=entities)
    def mark_healthy(self, process: str, entity: str) -> None:
        self.workers[process].by_hand(lambda pair: pair.mark_healthy(entity))

    @precondition(lambda self: len(self.syphons) < MOST_SYPHONS)
    @rule(process=processes, forever=st.booleans(), pause=pauses)
    def start_syphon(self, process: str, forever: bool, pause: float) -> None:
        self.workers[process].start_syphon(forever=forever)
        self.world.pass_time(pause)

    @precondition(lambda self: self.syphons)
    @rule(politely=st.booleans())
    def end_syphon(self, politely: bool) -> None:
        self.syphons[0].end_syphon(politely=politely)

    @rule(process=processes)
    def kill(self, process: str) -> None:
        self.workers[process] = self.workers[process].kill()

    @rule(process=processes, seconds=pauses, locks=st.booleans())
    def freeze(self, process: str, seconds: float, locks: bool) -> None:
        """For some time, possibly until all locks have ended."""
        self.workers[process].process.stop()
        self.world.pass_time(seconds)
        if locks:
            self.world.locks_end(61)
        self.workers[process].resume()

    @rule(seconds=st.sampled_from([-3600.0, -5.0, 5.0, 3600.0]))
    def set_the_machines_clock(self, seconds: float) -> None:
        self.world.set_clock(seconds)

    @rule(process=processes, seconds=st.sampled_from([1.0, 61.0, 600.0]))
    def put_a_clock_forward(self, process: str, seconds: float) -> None:
        self.workers[process].clock.ahead += seconds

    @rule(seconds=st.sampled_from([1.0, 61.0]))
    def locks_end(self, seconds: float) -> None:
        self.world.locks_end(seconds)

    @invariant()
    def all_guarantees_hold(self) -> None:
        self.world.check()

    def teardown(self) -> None:
        if "world" not in vars(self):
            return  # it could not be created
        try:
            self.world.check_final_state()
        finally:
            self.world.close()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hide logs of injected faults, and warnings about sockets of broken connections."""
    logging.disable(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()
    logging.disable(logging.NOTSET)


def explore(*, examples: int, steps: int, repeatable: bool) -> None:
    run_state_machine_as_test(
        PairMachine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            derandomize=repeatable,
            database=None,
            suppress_health_check=list(HealthCheck),
            phases=(Phase.generate, Phase.shrink),
        ),
    )


@pytest.mark.timeout(300)  # about ten seconds of one core
def test_no_accepted_message_is_lost_in_random_operations() -> None:
    # The same examples each time: only a change of the code makes a difference, and the simulation draws others.
    explore(examples=how_many(40, quick=10), steps=30, repeatable=True)


@pytest.mark.exploring
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_accepted_message_is_lost_in_many_random_operations() -> None:
    explore(examples=MANY, steps=50, repeatable=False)
