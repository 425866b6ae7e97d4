"""Whatever happens in whatever order, no accepted message is missing (SPEC section 1).

Random sequences of sends by several processes, faults, pings, failovers by hand, syphons that start,
stop and die, and clocks that jump, over two embedded namespaces in this process and the real SDK.
A longer run by hand: ``PAIR_MODEL_EXAMPLES=200 pytest tests/core/test_pair_model.py --timeout 0``.
"""

from __future__ import annotations

import asyncio
import gc
import os
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Coroutine, Iterator
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from azure.servicebus import ServiceBusMessage
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from servicebus_emulator import Emulator, Fault, FaultKind, Operation
from servicebus_emulator.amqp.incoming import message_id_of
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_emulator.engine.entities import SubQueue
from servicebus_pair.core import NamespacePair, PairOptions
from servicebus_pair.core.backlog import backlog_queues
from servicebus_pair.core.errors import SendError
from servicebus_pair.core.ports import SystemClock
from servicebus_pair.core.syphon import Syphon
from tests.core.hosted import endpoint

ENTITIES = ["flights", "delays"]
QUEUES = backlog_queues("contoso", 2)
PROCESSES = [0, 1]
ResultT = TypeVar("ResultT")

FEW_EXAMPLES = 2
EXAMPLES = int(os.environ.get("PAIR_MODEL_EXAMPLES", FEW_EXAMPLES))
MOST_SYPHONS = 3
processes, entities = st.sampled_from(PROCESSES), st.sampled_from(ENTITIES)
few = st.integers(1, 4)
PRIMARY_FAULTS = st.sampled_from(
    [
        (FaultKind.INTERNAL_ERROR, Operation.SEND),
        (FaultKind.RESET, Operation.SEND),
        (FaultKind.CLOSE_LINK, Operation.SEND),
        (FaultKind.RELEASED, Operation.SEND),
        (FaultKind.ENTITY_DISABLED, Operation.SEND),
    ]
)
SECONDARY_FAULTS = st.sampled_from(
    [
        (FaultKind.INTERNAL_ERROR, Operation.SEND),
        (FaultKind.RESET, Operation.SETTLE),
        (FaultKind.RESET, Operation.RECEIVE),
        (FaultKind.LOCK_LOST, Operation.SETTLE),
        (FaultKind.DUPLICATE, Operation.SETTLE),
        (FaultKind.CLOSE_LINK, Operation.SEND),
    ]
)


class JumpingClock(SystemClock):
    """The machine's, put forward by hand."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class PairModel:
    """Two processes of a pair, as far as they can be in one."""

    def __init__(self, *, ordered: bool) -> None:
        self.loop = asyncio.new_event_loop()
        self.clock = JumpingClock()
        self.accepted: dict[str, set[str]] = {entity: set() for entity in ENTITIES}
        self.sent: Counter[str] = Counter()
        self.syphons: list[tuple[Syphon, asyncio.Task[Any]]] = []
        self.ordered = ordered
        options = PairOptions(
            backlog_queue_count=len(QUEUES),
            failover_interval=timedelta(0),
            ping_primary_interval=timedelta(seconds=1),
            ping_timeout=timedelta(seconds=1),
            server_busy_delay=timedelta(seconds=0.1),
            ordering="session" if ordered else "none",
        )
        self.run(self._start(options))

    async def _start(self, options: PairOptions) -> None:
        self.emulator = Emulator(["contoso", "contoso-dr"])
        await self.emulator.start()
        self.primary, self.secondary = self.emulator["contoso"], self.emulator["contoso-dr"]
        for entity in ENTITIES:
            self.primary.namespace.create_queue(QueueDescription(entity))
        ends = endpoint(self.primary), endpoint(self.secondary)
        self.pairs = [NamespacePair(*ends, options, clock=self.clock) for _ in PROCESSES]
        for pair in self.pairs:
            await pair.__aenter__()
        await self.pairs[0].provision()

    def run(self, call: Coroutine[Any, Any, ResultT]) -> ResultT:
        return self.loop.run_until_complete(asyncio.wait_for(call, 90))

    def send(self, process: int, entity: str, session: str, count: int) -> None:
        name = f"{process}{session}"
        numbers = range(self.sent[entity + name], self.sent[entity + name] + count)
        self.sent[entity + name] += count
        messages = [ServiceBusMessage(f"{n}", message_id=f"{name}/{n}", session_id=name) for n in numbers]
        before = self.pairs[process].health(entity)
        primary = self.run(self._send(process, entity, messages))
        after = self.pairs[process].health(entity)
        if before.failed_over and after.failed_over and after.since == before.since:
            assert primary == 0, "a send to a failed-over entity reached the primary"

    async def _send(self, process: int, entity: str, messages: list[Any]) -> int:
        """Send until all is accepted: order would mean nothing if the caller gave up in the middle."""
        primary = 0
        async with self.pairs[process].sender(entity) as sender:
            while messages:
                try:
                    result = await sender.send(messages)
                    messages = []
                except SendError as error:
                    result, messages = error.result, list(error.unsent)
                    self.primary.clear_faults()
                    self.secondary.clear_faults()
                self.accepted[entity] |= set(result.message_ids)
                primary += result.primary
        return primary

    def divert(self, process: int, entity: str, session: str, count: int) -> None:
        self.fail_over(process, entity)
        self.send(process, entity, session, count)

    def break_primary(self, fault: tuple[FaultKind, Operation], entity: str, count: int) -> None:
        self.primary.set_fault(Fault(kind=fault[0], on=(fault[1],), entity=entity, count=count))

    def drain_while_broken(self, fault: tuple[FaultKind, Operation], entity: str, count: int, process: int) -> None:
        self.divert(1 - process, entity, "a", 5)
        self.break_primary(fault, entity, count)
        self.start_syphon(process, 1)

    def break_secondary(self, fault: tuple[FaultKind, Operation], count: int) -> None:
        self.secondary.set_fault(Fault(kind=fault[0], on=(fault[1],), count=count))

    def mend(self) -> None:
        self.primary.clear_faults()
        self.secondary.clear_faults()

    def ping(self, process: int, entity: str) -> None:
        self.run(self.pairs[process].ping(entity))

    def fail_over(self, process: int, entity: str) -> None:
        self.run(self._by_hand(process, entity, healthy=False))

    def mark_healthy(self, process: int, entity: str) -> None:
        if self.ordered:
            return  # by hand, order is the caller's
        self.run(self._by_hand(process, entity, healthy=True))

    async def _by_hand(self, process: int, entity: str, *, healthy: bool) -> None:
        if healthy:
            self.pairs[process].mark_healthy(entity)
        else:
            self.pairs[process].fail_over(entity, reason="the model")

    def start_syphon(self, process: int, seconds: float) -> None:
        if len(self.syphons) == MOST_SYPHONS:
            self.end_syphon(politely=False)
        self.run(self._start_syphon(process, seconds))

    async def _start_syphon(self, process: int, seconds: float) -> None:
        syphon = self.pairs[process].syphon()
        self.syphons.append((syphon, asyncio.create_task(syphon.run())))
        await asyncio.sleep(seconds)

    def end_syphon(self, politely: bool) -> None:
        if self.syphons:
            self.run(self._end_syphon(politely=politely))

    async def _end_syphon(self, *, politely: bool) -> None:
        syphon, task = self.syphons.pop(0)
        if politely:
            syphon.stop()
        else:
            task.cancel()
        await asyncio.wait([task])

    def jump(self, seconds: float) -> None:
        self.run(self._jump(seconds))

    async def _jump(self, seconds: float) -> None:
        self.clock.ahead += seconds
        self.emulator._clock.shift(timedelta(seconds=seconds))

    def every_accepted_message_is_somewhere(self) -> None:
        waiting = {name for queue in QUEUES for name in held(self.secondary, queue)}
        for entity in ENTITIES:
            missing = self.accepted[entity] - set(held(self.primary, entity)) - waiting
            assert not missing, f"{len(missing)} of {entity} are in no queue, such as {min(missing)}"

    def teardown(self) -> None:
        try:
            self.mend()
            self.run(self._settle_up())
        finally:
            self.loop.close()

    async def _settle_up(self) -> None:
        try:
            while self.syphons:
                await self._end_syphon(politely=True)
            await self._jump(61)
            report = await self.pairs[0].syphon().drain()
            assert report.empty
            assert not report.dead_lettered
            for entity in ENTITIES:
                names = held(self.primary, entity)
                assert self.accepted[entity] <= set(names)
                if self.ordered:
                    check_order(names)
        finally:
            for pair in self.pairs:
                await pair.close()
            await self.emulator.stop()
            await asyncio.sleep(0)


def held(namespace: Any, path: str) -> list[str]:
    """The ids in a queue and its dead-letter queue, in order; pings have none that counts."""
    entity = namespace.namespace.find(path)
    found = [message for part in SubQueue for message in entity.part(part).peek(1, limit=100_000)]
    return [message_id_of(message.content)[2:].decode() for message in found]


def check_order(names: list[str]) -> None:
    sessions: dict[str, dict[int, None]] = defaultdict(dict)
    for name in names:
        session, slash, number = name.rpartition("/")
        if slash:
            sessions[session].setdefault(int(number))
    for session, numbers in sessions.items():
        assert list(numbers) == sorted(numbers), f"session {session} is out of order"


@pytest.fixture(autouse=True)
def collect_what_the_client_leaks() -> Iterator[None]:
    """The client leaves the socket of a connection that broke to the garbage collector, which warns of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


Step = Callable[[PairModel], None]
sessions, counts = st.sampled_from("ab"), st.integers(1, 30)
STEPS: st.SearchStrategy[Step] = st.one_of(
    st.builds(lambda *given: lambda model: model.drain_while_broken(*given), PRIMARY_FAULTS, entities, few, processes),
    st.builds(lambda *given: lambda model: model.divert(*given), processes, entities, sessions, counts),
    st.builds(lambda *given: lambda model: model.send(*given), processes, entities, sessions, counts),
    st.builds(lambda *given: lambda model: model.break_primary(*given), PRIMARY_FAULTS, entities, few),
    st.builds(lambda *given: lambda model: model.break_secondary(*given), SECONDARY_FAULTS, few),
    st.builds(lambda: lambda model: model.mend()),
    st.builds(lambda *given: lambda model: model.ping(*given), processes, entities),
    st.builds(lambda *given: lambda model: model.fail_over(*given), processes, entities),
    st.builds(lambda *given: lambda model: model.mark_healthy(*given), processes, entities),
    st.builds(lambda *given: lambda model: model.start_syphon(*given), processes, st.sampled_from([0, 0.05, 0.5])),
    st.builds(lambda politely: lambda model: model.end_syphon(politely), st.booleans()),
    st.builds(lambda seconds: lambda model: model.jump(seconds), st.sampled_from([1.0, 61.0, 600.0])),
)


# The same examples at every run; more of them, and others, by hand.
@pytest.mark.slow
@settings(
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=EXAMPLES == FEW_EXAMPLES,
    database=None,
    max_examples=EXAMPLES,
)
@given(ordered=st.booleans(), plan=st.lists(STEPS, min_size=8, max_size=8 if EXAMPLES == FEW_EXAMPLES else 30))
def test_whatever_happens_no_accepted_message_is_missing(ordered: bool, plan: list[Step]) -> None:
    model = PairModel(ordered=ordered)
    try:
        for step in plan:
            step(model)
            model.every_accepted_message_is_somewhere()
    finally:
        model.teardown()
