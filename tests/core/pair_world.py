"""A pair's world: two embedded namespaces, processes that share a health store, and who sees what really happened.

What is accepted is what a process was told (as its ledger is); where messages are, and what was
stored and taken out in which order, is observed in the engines of the namespaces.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any

from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Emulator, Fault, FaultKind, HostedNamespace
from servicebus_emulator.amqp.incoming import message_id_of
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_emulator.engine.entities import SubQueue
from servicebus_emulator.engine.journal import MemoryJournal
from servicebus_pair.core import NamespacePair, PairOptions, State
from servicebus_pair.core.backlog import backlog_queues
from servicebus_pair.core.errors import SendError, account_of
from servicebus_pair.core.events import Event, HealthChanged, MessagesAccepted
from servicebus_pair.core.ports import InMemoryHealthStore, SystemClock
from servicebus_pair.core.sender import PairSender
from servicebus_pair.core.syphon import Syphon
from tests.core.hosted import endpoint
from tests.core.peeking import peek_all
from tests.simulated import Process, SimulatedLoop

__all__ = ["ENTITIES", "QUEUES", "Worker", "World"]

ENTITIES = ("flights", "delays")
QUEUES = backlog_queues("contoso", 2)
# Each way, so that a step of the model ends in the middle of what goes on.
LATENCY = 0.01
# From the decision to send to the arrival of the last frame: both ways of opening a link lie before the decision.
_IN_TRANSIT = 10 * LATENCY


class JumpingClock(SystemClock):
    """The one that is injected into a pair, put forward by hand."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class Witness(MemoryJournal):
    """Told by an engine of every message that is stored or gone, when it happens."""

    def __init__(self) -> None:
        self.stored: Counter[str] = Counter()
        self.gone: Counter[str] = Counter()
        self.on_stored: Callable[[str], None] = _nothing
        self.on_gone: Callable[[str], None] = _nothing

    def add(self, queue: int, message: Any) -> None:
        self.add_all(queue, [message])

    def add_all(self, queue: int, messages: Iterable[Any]) -> None:  # noqa: ARG002 - the port's
        for message in messages:
            name = name_of(message)
            self.stored[name] += 1
            self.on_stored(name)

    def remove(self, message: Any) -> None:
        name = name_of(message)
        self.gone[name] += 1
        self.on_gone(name)


class World:
    """Both namespaces and everybody; ``violations`` are what was seen that must not be.

    :param ordered: whether sessions keep their order.
    :param shared: whether the processes share their health.
    :param seed: of all choices.
    """

    def __init__(self, *, ordered: bool, shared: bool, seed: int) -> None:
        self.loop = SimulatedLoop()
        self.ordered = ordered
        self.random = Random(seed)  # noqa: S311 - a plan that can be repeated
        self.store = InMemoryHealthStore() if shared else None
        self.healed_by_sends: set[float] = set()
        self.accepted: dict[str, None] = {}
        self.sent: dict[str, ServiceBusMessage] = {}
        self.violations: list[str] = []
        self.workers: list[Worker] = []
        self.by_name: dict[str, Worker] = {}
        self.slow_until = 0.0
        self.options = PairOptions(
            backlog_queue_count=len(QUEUES),
            failover_interval=timedelta(seconds=1),
            ping_primary_interval=timedelta(seconds=1),
            ping_timeout=timedelta(seconds=1),
            server_busy_delay=timedelta(seconds=0.2),
            syphon_long_poll=timedelta(seconds=5),
            ordering="session" if ordered else "none",
        )
        self._furthest = 0.0
        self._clocks = ExitStack()
        self._clocks.enter_context(self.loop.ruling_the_clocks())
        self.run(self._start())

    async def _start(self) -> None:
        self.emulator = Emulator(["contoso", "contoso-dr"], open=True)
        await self.emulator.start()
        self.primary, self.secondary = self.emulator["contoso"], self.emulator["contoso-dr"]
        self.on_primary, self.in_backlog = _watch(self.primary), _watch(self.secondary)
        self.on_primary.on_stored, self.in_backlog.on_gone = self._arrived, self._completed
        for entity in ENTITIES:
            self.primary.namespace.create_queue(QueueDescription(entity))
        for queue in QUEUES:
            self.secondary.namespace.create_queue(QueueDescription(queue, max_delivery_count=2**31 - 1))
        for namespace in (self.primary, self.secondary):
            namespace.set_fault(Fault(kind=FaultKind.LATENCY, delay=LATENCY))

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def pass_time(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def hire(self, name: str) -> Worker:
        worker = Worker(self, name)
        self.workers.append(worker)
        return worker

    def break_(self, namespace: HostedNamespace, fault: Fault) -> None:
        self.run(_set(namespace, fault))
        if namespace is self.primary and fault.duration is not None:
            self.slow_until = max(self.slow_until, self.loop.time() + fault.duration)

    def mend(self) -> None:
        self.run(self._mend())

    async def _mend(self) -> None:
        for namespace in (self.primary, self.secondary):
            for armed in namespace.faults[1:]:
                namespace.clear_faults(armed.id)
        self.slow_until = min(self.slow_until, self.loop.time())

    def set_clock(self, by: float) -> None:
        """Set the machine's clock, by which the namespaces go too: set back, their locks and faults last longer."""
        self.loop.wall += by
        if by < 0 and self.slow_until > self.loop.time():
            self.slow_until -= by
        self._furthest = max(self._furthest, self.loop.wall)

    def locks_end(self, seconds: float) -> None:
        """Time passes for the namespaces only."""
        self.run(self._shift(seconds))

    async def _shift(self, seconds: float) -> None:
        self.emulator._clock.shift(timedelta(seconds=seconds))

    # What must never be seen

    def _arrived(self, name: str) -> None:
        """A send, and no syphon's, must not go to an entity that is failed over for its process."""
        sender = self.by_name.get(name)
        if sender is None or self.in_backlog.stored[name] or sender.process.dead:
            return
        entity, now = name.partition(".")[0], self.loop.time()
        since = sender.failed_over_since.get(entity)
        if since is not None and now - since > _IN_TRANSIT and self.slow_until + _IN_TRANSIT < now:
            self.violations.append(f"{name} was sent to {entity}, failed over for {now - since:.3f} s")

    def _completed(self, name: str) -> None:
        """What leaves the backlog is on the primary, each time."""
        if self.on_primary.stored[name] < self.in_backlog.gone[name]:
            self.violations.append(f"{name} was completed before the primary had it")

    def check(self) -> None:
        assert not self.violations, self.violations[0]
        held = {name for namespace, paths in self._places() for path in paths for name in held_in(namespace, path)}
        missing = [name for name in self.accepted if name not in held]
        assert not missing, f"{len(missing)} accepted messages are in no queue, such as {missing[0]}"

    def _places(self) -> list[tuple[HostedNamespace, Sequence[str]]]:
        return [(self.primary, ENTITIES), (self.secondary, QUEUES)]

    # The end

    def settle_up(self) -> None:
        """Mend everything; then everything must have arrived, as it was sent, and all entities be healthy."""
        self.mend()
        self.loop.wall = self._furthest
        for worker in self.workers:
            worker.resume()
            for _ in tuple(worker.syphons):
                worker.end_syphon(politely=True)
        living = [worker for worker in self.workers if not worker.process.dead]
        self._wait_until_all_is_sent(living)
        self.locks_end(61)
        last = self.hire("last")
        report = self.run(last.drain())
        self.check()
        assert report.empty, f"the drain left {report.left}, failures {dict(report.failures)}"
        assert not report.dead_lettered
        self._wait_until_all_is_healthy(living)
        for entity in ENTITIES:
            check_contents(self, entity)
            if self.ordered:
                check_order(self, entity)

    def _wait_until_all_is_sent(self, workers: list[Worker]) -> None:
        for _ in range(60):
            if not any(worker.outbox for worker in workers):
                return
            self.pass_time(1)
        raise AssertionError("with everything mended, a send does not end")

    def _wait_until_all_is_healthy(self, workers: list[Worker]) -> None:
        """A call that hung while something was broken may have to end first; then a ping is due."""
        failed: list[str] = []
        for _ in range(30):
            failed = [
                f"{entity} for {worker.name}"
                for worker in workers
                for entity in ENTITIES
                if worker.pair.health(entity).failed_over
            ]
            if not failed:
                return
            self.pass_time(1)
        raise AssertionError(f"stay failed over: {', '.join(failed)}")

    def close(self) -> None:
        try:
            self.run(self._close())
        finally:
            self._clocks.close()
            self.loop.close()

    async def _close(self) -> None:
        await self.emulator.stop()
        await asyncio.gather(*(worker.process.bury() for worker in self.workers))


class Worker:
    """One process: a pair, its senders and its syphons. The id of a message tells who sent it, and when."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.process = Process(world.loop, name)
        self.failed_over_since: dict[str, float] = {}
        self.syphons: list[tuple[Syphon, asyncio.Task[Any]]] = []
        self.outbox: dict[str, list[Any]] = {}
        self._sending: dict[str, asyncio.Task[Any]] = {}
        self._news = {entity: asyncio.Event() for entity in ENTITIES}
        self.clock: JumpingClock = self.process.call(JumpingClock)
        self.pair = NamespacePair(
            endpoint(world.primary),
            endpoint(world.secondary),
            world.options,
            store=world.store,
            observers=[self],
            clock=self.clock,
            random_source=Random(world.random.random()),  # noqa: S311 - a choice that can be repeated
        )
        world.run(self.process.begin(self.pair.__aenter__()))
        for entity in ENTITIES:
            self.process.begin(self._send_all(entity))

    def observe(self, event: Event) -> None:
        match event:
            case MessagesAccepted():
                for ref in event.messages:
                    self.world.accepted[ref.message_id] = None
            case HealthChanged() if event.after.failed_over:
                self.failed_over_since.setdefault(event.entity.casefold(), self.world.loop.time())
            case HealthChanged():
                self.failed_over_since.pop(event.entity.casefold(), None)
                self._check_who_healed(event)
            case _:
                return

    def _check_who_healed(self, event: HealthChanged) -> None:
        """A send ends a suspicion, here or as told by another process, and never a failover."""
        if event.after.state is not State.HEALTHY or event.after.by != "send":
            return
        if event.before.state is State.SUSPECT:
            self.world.healed_by_sends.add(event.after.since)
        elif event.after.since not in self.world.healed_by_sends:
            self.world.violations.append(f"a send ended the failover of {event.entity}")

    def send(self, entity: str, session: str, count: int, *, size: int = 0, scheduled: float | None = None) -> None:
        """Have messages of ``size`` bytes sent after those that wait already; ``scheduled`` is in so many seconds."""
        for _ in range(count):
            name = f"{entity}.{self.name}.{session}.{len(self.world.sent)}"
            message = ServiceBusMessage(
                name.encode().ljust(size),
                message_id=name,
                session_id=f"{self.name}{session}",
                subject="numbered",
                time_to_live=timedelta(days=1),
                application_properties={"name": name, "x-ms-path": "its own"},
            )
            self.world.sent[name] = message
            self.world.by_name[name] = self
            self.outbox.setdefault(entity, []).append((message, scheduled))
        self._news[entity].set()

    async def _send_all(self, entity: str) -> None:
        while not self.process.dead:
            async with self.pair.sender(entity) as sender:
                await self._send_what_waits(entity, sender)

    async def _send_what_waits(self, entity: str, sender: PairSender) -> None:
        while not self.outbox.get(entity):
            self._news[entity].clear()
            await self._news[entity].wait()
        waiting = self.outbox[entity]
        scheduled = waiting[0][1]
        messages = []
        for message, each in waiting:
            if each != scheduled:
                break
            messages.append(message)
        if self.process.dead:
            return
        self._sending[entity] = asyncio.ensure_future(self._send_once(sender, messages, scheduled))
        left = await self._sending[entity]
        # Its order would mean nothing if the caller gave up in the middle.
        waiting[: len(messages)] = [(message, scheduled) for message in left]
        if not waiting:
            del self.outbox[entity]
        elif left:
            await asyncio.sleep(0.1)

    async def _send_once(self, sender: PairSender, messages: list[Any], scheduled: float | None) -> list[Any]:
        """Send, and answer what was not accepted; accepted and unsent are together what was given."""
        account: SendError | None
        try:
            if scheduled is None:
                result = await sender.send(messages, timeout=20)
            else:
                at = datetime.fromtimestamp(self.world.loop.wall_clock() + scheduled, UTC)
                result = (await sender.schedule(messages, at, timeout=20)).sent
        except asyncio.CancelledError as error:
            account = account_of(error)
            if account is None:
                return messages
        except SendError as error:
            account = error
        else:
            self._account_for(messages, result.message_ids, [])
            return []
        unsent = [self.world.sent[each.properties.message_id] for each in account.unsent]
        self._account_for(messages, account.result.message_ids, unsent)
        return unsent

    def _account_for(self, given: list[Any], accepted: Sequence[str], unsent: list[Any]) -> None:
        told = sorted([*accepted, *(message.message_id for message in unsent)])
        if told != sorted(message.message_id for message in given):
            self.world.violations.append(f"of {len(given)} messages a send accounts for {len(told)}")
        self.world.violations += [
            f"{name} is said to be accepted" for name in accepted if name not in self.world.accepted
        ]

    def cancel_send(self, entity: str) -> None:
        if entity in self._sending:
            self._sending[entity].cancel()
            self.world.pass_time(0)

    def by_hand(self, act: Any) -> None:
        """Call something of the pair, as a part of this process, as soon as that runs."""

        async def now() -> None:
            act(self.pair)

        self.process.begin(now())
        self.world.pass_time(0)

    def ping(self, entity: str) -> None:
        self.process.begin(self.pair.ping(entity))

    def start_syphon(self, *, forever: bool) -> None:
        async def made() -> Syphon:
            return self.pair.syphon()

        syphon = self.world.run(made())  # in the loop of the pair
        task = self.process.begin(syphon.run() if forever else syphon.drain())
        self.syphons.append((syphon, task))

    def end_syphon(self, *, politely: bool) -> None:
        syphon, task = self.syphons.pop(0)
        if politely:
            self.process.call(syphon.stop)
        else:
            task.cancel()
        self.world.pass_time(0)

    def drain(self) -> asyncio.Task[Any]:
        return self.process.begin(self._drain())

    async def _drain(self) -> Any:
        while True:
            report = await self.pair.syphon().drain()
            if report.moved_total == 0:
                return report

    def resume(self) -> None:
        if self.process.stopped and not self.process.dead:
            self.world.run(_call(self.process.resume))

    def kill(self) -> Worker:
        """Kill it; answer its successor, which sends what this one had not sent."""
        self.process.kill()
        successor = self.world.hire(self.name)
        waiting = [
            (e, m) for e, rows in self.outbox.items() for m in rows if m[0].message_id not in self.world.accepted
        ]
        for entity, row in waiting:
            successor.outbox.setdefault(entity, []).append(row)
            self.world.by_name[row[0].message_id] = successor
        return successor


def _nothing(name: str) -> None:
    """Stand in until somebody wants to know."""


async def _call(function: Any) -> None:
    function()


async def _set(namespace: HostedNamespace, fault: Fault) -> None:
    namespace.set_fault(fault)


def _watch(namespace: HostedNamespace) -> Witness:
    witness = Witness()
    object.__setattr__(namespace.namespace._context, "journal", witness)
    return witness


def name_of(message: Any) -> str:
    # The identity that duplicates are detected by: the encoding of a string with one byte of length.
    return message_id_of(message.content)[2:].decode()


def held_in(namespace: HostedNamespace, path: str) -> list[str]:
    """The ids in a queue and its dead-letter queue, in order."""
    entity: Any = namespace.namespace.find(path)
    return [name_of(message) for part in SubQueue for message in entity.part(part).peek(1, limit=100_000)]


def check_contents(world: World, entity: str) -> None:
    """Everything that was accepted is on the primary, as it was sent."""
    found = world.run(peek_all(world.primary.connection_string, entity))
    arrived = {message.message_id: message for message in found}
    for name in world.accepted:
        if name.startswith(f"{entity}."):
            assert name in arrived, f"{name} is not on the primary"
            assert traits(arrived[name]) == traits(world.sent[name]), f"{name} is not as it was sent"


def traits(message: Any) -> tuple[Any, ...]:
    properties = {text_of(key): text_of(value) for key, value in message.application_properties.items()}
    return b"".join(message.body), message.session_id, message.subject, message.time_to_live, properties


def text_of(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def check_order(world: World, entity: str) -> None:
    """Within a session the first arrivals of what was accepted are in the order in which it was sent."""
    sessions: dict[str, dict[int, None]] = defaultdict(dict)
    for name in held_in(world.primary, entity):
        session, _, number = name.rpartition(".")
        if name in world.accepted:
            sessions[session].setdefault(int(number))
    for session, numbers in sessions.items():
        assert list(numbers) == sorted(numbers), f"session {session} is out of order: {list(numbers)}"
