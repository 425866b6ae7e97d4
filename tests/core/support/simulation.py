"""A simulation of two embedded namespaces and several processes that share a health store.

A message counts as accepted once its process was notified (as a ledger is); where messages are, and what was
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
from servicebus_emulator.amqp.codec.transfer_decoder import encoded_message_id
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.namespace.entities import SubQueue
from servicebus_emulator.engine.runtime.journal import Journal
from servicebus_pair.core import HealthState, NamespacePair, PairOptions
from servicebus_pair.core.model.errors import SendError, find_send_error
from servicebus_pair.core.model.events import Event, HealthChanged, MessagesAccepted
from servicebus_pair.core.model.interfaces import InMemoryHealthStore, SystemClock
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths, session_queue_paths
from servicebus_pair.core.send.sender import PairSender
from servicebus_pair.core.syphon.drain import Syphon
from tests.core.support.local_pair import endpoint
from tests.core.support.queues import peek_all
from tests.simulated_time import Process, SimulatedLoop

__all__ = ["ENTITIES", "QUEUES", "Simulation", "Worker"]

ENTITIES = ("flights", "delays")
QUEUES = backlog_queue_paths("contoso", 2)
SESSION_QUEUES = session_queue_paths("contoso", 2)
# Per direction, so that a step of the model ends while exchanges are under way.
LATENCY = 0.01
# From the decision to send to the arrival of the last frame; the link was opened before the decision.
_IN_TRANSIT = 10 * LATENCY


class AdjustableClock(SystemClock):
    """The clock of a pair, which the model moves forward."""

    ahead = 0.0

    def now(self) -> float:
        return super().now() + self.ahead


class MessageJournal(Journal):
    """Records every message that an engine stores or removes."""

    def __init__(self) -> None:
        self.stored: Counter[str] = Counter()
        self.gone: Counter[str] = Counter()
        self.on_stored: Callable[[str], None] = _noop
        self.on_gone: Callable[[str], None] = _noop

    def add(self, queue: int, message: Any) -> None:
        self.add_all(queue, [message])

    def add_all(self, queue: int, messages: Iterable[Any]) -> None:  # noqa: ARG002 - the port's
        for message in messages:
            name = name_of(message)
            self.stored[name] += 1
            self.on_stored(name)

    def remove_all(self, messages: Iterable[Any]) -> None:
        for message in messages:
            name = name_of(message)
            self.gone[name] += 1
            self.on_gone(name)


class Simulation:
    """Both namespaces and all workers; ``violations`` lists broken guarantees.

    :param ordered: whether sessions keep their order.
    :param shared: whether the processes share their health.
    :param seed: of all choices.
    """

    def __init__(self, *, ordered: bool, shared: bool, seed: int) -> None:
        self.loop = SimulatedLoop()
        self.ordered = ordered
        self.random = Random(seed)  # noqa: S311 - a repeatable plan
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
        self._clocks.enter_context(self.loop.patched_clocks())
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
        for queue in SESSION_QUEUES:
            described = QueueDescription(queue, max_delivery_count=2**31 - 1, requires_session=True)
            self.secondary.namespace.create_queue(described)
        for namespace in (self.primary, self.secondary):
            namespace.set_fault(Fault(kind=FaultKind.LATENCY, delay=LATENCY))

    def run(self, work: Any) -> Any:
        return self.loop.run_until_complete(work)

    def pass_time(self, seconds: float) -> None:
        self.run(asyncio.sleep(seconds))

    def add_worker(self, name: str) -> Worker:
        worker = Worker(self, name)
        self.workers.append(worker)
        return worker

    def inject_fault(self, namespace: HostedNamespace, fault: Fault) -> None:
        self.run(_set(namespace, fault))
        if namespace is self.primary and fault.duration is not None:
            self.slow_until = max(self.slow_until, self.loop.time() + fault.duration)

    def clear_faults(self) -> None:
        self.run(self._clear_faults())

    async def _clear_faults(self) -> None:
        for namespace in (self.primary, self.secondary):
            for armed in namespace.faults[1:]:
                namespace.clear_faults(armed.id)
        self.slow_until = min(self.slow_until, self.loop.time())

    def set_clock(self, by: float) -> None:
        """Set the machine's clock, which the namespaces use too: set back, their locks and faults last longer."""
        self.loop.wall += by
        if by < 0 and self.slow_until > self.loop.time():
            self.slow_until -= by
        self._furthest = max(self._furthest, self.loop.wall)

    def locks_end(self, seconds: float) -> None:
        """Let time pass for the namespaces only."""
        self.run(self._shift(seconds))

    async def _shift(self, seconds: float) -> None:
        self.emulator._settings.clock.shift(timedelta(seconds=seconds))

    # Guarantees

    def _arrived(self, name: str) -> None:
        """A sender must not send to an entity that its process has failed over; a syphon may."""
        sender = self.by_name.get(name)
        if sender is None or self.in_backlog.stored[name] or sender.process.dead:
            return
        entity, now = name.partition(".")[0], self.loop.time()
        since = sender.failed_over_since.get(entity)
        if since is not None and now - since > _IN_TRANSIT and self.slow_until + _IN_TRANSIT < now:
            self.violations.append(f"{name} was sent to {entity}, failed over for {now - since:.3f} s")

    def _completed(self, name: str) -> None:
        """A message that leaves the backlog must be on the primary, each time."""
        if self.on_primary.stored[name] < self.in_backlog.gone[name]:
            self.violations.append(f"{name} was completed before the primary had it")

    def check(self) -> None:
        assert not self.violations, self.violations[0]
        held = {name for namespace, paths in self._places() for path in paths for name in held_in(namespace, path)}
        missing = [name for name in self.accepted if name not in held]
        assert not missing, f"{len(missing)} accepted messages are in no queue, such as {missing[0]}"

    def _places(self) -> list[tuple[HostedNamespace, Sequence[str]]]:
        return [(self.primary, ENTITIES), (self.secondary, (*QUEUES, *SESSION_QUEUES))]

    # Final state

    def check_final_state(self) -> None:
        """Clear all faults, then check that all messages arrived unchanged and all entities are healthy."""
        self.clear_faults()
        self.loop.wall = self._furthest
        for worker in self.workers:
            worker.resume()
            for _ in tuple(worker.syphons):
                worker.end_syphon(politely=True)
        running = [worker for worker in self.workers if not worker.process.dead]
        self._wait_until_all_is_sent(running)
        self.locks_end(61)
        last = self.add_worker("last")
        report = self.run(last.drain())
        self.check()
        assert report.empty, f"the drain left {report.left}, failures {dict(report.failures)}"
        assert not report.dead_lettered
        self._wait_until_all_is_healthy(running)
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
        """Wait for recovery: a call that hung during a fault may have to end before the next ping."""
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
        await asyncio.gather(*(worker.process.reap() for worker in self.workers))


class Worker:
    """One process: a pair, its senders and its syphons. A message id names its sender and its number."""

    def __init__(self, world: Simulation, name: str) -> None:
        self.world = world
        self.name = name
        self.process = Process(world.loop, name)
        self.failed_over_since: dict[str, float] = {}
        self.syphons: list[tuple[Syphon, asyncio.Task[Any]]] = []
        self.outbox: dict[str, list[Any]] = {}
        self._sending: dict[str, asyncio.Task[Any]] = {}
        self._news = {entity: asyncio.Event() for entity in ENTITIES}
        self.clock: AdjustableClock = self.process.call(AdjustableClock)
        self.pair = NamespacePair(
            endpoint(world.primary),
            endpoint(world.secondary),
            world.options,
            store=world.store,
            observers=[self],
            clock=self.clock,
            random_source=Random(world.random.random()),  # noqa: S311 - a repeatable choice
        )
        world.run(self.process.start(self.pair.__aenter__()))
        for entity in ENTITIES:
            self.process.start(self._send_all(entity))

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
        """A send may end a suspicion, here or in another process, but never a failover."""
        if event.after.state is not HealthState.HEALTHY or event.after.by != "send":
            return
        if event.before.state is HealthState.SUSPECT:
            self.world.healed_by_sends.add(event.after.since)
        elif event.after.since not in self.world.healed_by_sends:
            self.world.violations.append(f"a send ended the failover of {event.entity}")

    def send(self, entity: str, session: str, count: int, *, size: int = 0, scheduled: float | None = None) -> None:
        """Queue messages of ``size`` bytes to be sent; ``scheduled`` is in so many seconds."""
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
        # Unsent messages go first, to keep the order.
        waiting[: len(messages)] = [(message, scheduled) for message in left]
        if not waiting:
            del self.outbox[entity]
        elif left:
            await asyncio.sleep(0.1)

    async def _send_once(self, sender: PairSender, messages: list[Any], scheduled: float | None) -> list[Any]:
        """Send and return what is to be sent again; accepted and unsent together must be all messages."""
        account: SendError | None
        try:
            if scheduled is None:
                result = await sender.send(messages, timeout=20)
            else:
                at = datetime.fromtimestamp(self.world.loop.wall_clock() + scheduled, UTC)
                result = (await sender.schedule(messages, at, timeout=20)).sent
        except asyncio.CancelledError as error:
            account = find_send_error(error)
            if account is None:
                return messages
        except SendError as error:
            account = error
        else:
            self._account_for(messages, result.message_ids, [])
            return []
        unsent = [self.world.sent[each.message_id] for each in account.unsent]
        self._account_for(messages, account.result.message_ids, unsent)
        # Sent again, what the service refused would come after the messages that were accepted around it.
        refused = {each.message_id for each in account.refused}
        return [message for message in unsent if message.message_id not in refused]

    def _account_for(self, given: list[Any], accepted: Sequence[str], unsent: list[Any]) -> None:
        reported = sorted([*accepted, *(message.message_id for message in unsent)])
        if reported != sorted(message.message_id for message in given):
            self.world.violations.append(f"of {len(given)} messages a send accounts for {len(reported)}")
        self.world.violations += [
            f"{name} is reported as accepted" for name in accepted if name not in self.world.accepted
        ]

    def cancel_send(self, entity: str) -> None:
        if entity in self._sending:
            self._sending[entity].cancel()
            self.world.pass_time(0)

    def by_hand(self, act: Any) -> None:
        """Call a method of the pair as part of this process, as soon as it runs."""

        async def now() -> None:
            await act(self.pair)

        self.process.start(now())
        self.world.pass_time(0)

    def ping(self, entity: str) -> None:
        self.process.start(self.pair.ping(entity))

    def start_syphon(self, *, forever: bool) -> None:
        async def made() -> Syphon:
            return self.pair.syphon()

        syphon = self.world.run(made())  # within the event loop of the pair
        task = self.process.start(syphon.run() if forever else syphon.drain())
        self.syphons.append((syphon, task))

    def end_syphon(self, *, politely: bool) -> None:
        syphon, task = self.syphons.pop(0)
        if politely:
            self.process.call(syphon.stop)
        else:
            task.cancel()
        self.world.pass_time(0)

    def drain(self) -> asyncio.Task[Any]:
        return self.process.start(self._drain())

    async def _drain(self) -> Any:
        while True:
            report = await self.pair.syphon().drain()
            if report.moved_total == 0:
                return report

    def resume(self) -> None:
        if self.process.stopped and not self.process.dead:
            self.world.run(_call(self.process.resume))

    def kill(self) -> Worker:
        """Kill the process; return its successor, which sends the remaining messages."""
        self.process.kill()
        successor = self.world.add_worker(self.name)
        waiting = [
            (e, m) for e, rows in self.outbox.items() for m in rows if m[0].message_id not in self.world.accepted
        ]
        for entity, row in waiting:
            successor.outbox.setdefault(entity, []).append(row)
            self.world.by_name[row[0].message_id] = successor
        return successor


def _noop(name: str) -> None:
    """Do nothing."""


async def _call(function: Any) -> None:
    function()


async def _set(namespace: HostedNamespace, fault: Fault) -> None:
    namespace.set_fault(fault)


def _watch(namespace: HostedNamespace) -> MessageJournal:
    witness = MessageJournal()
    object.__setattr__(namespace.namespace._context, "journal", witness)
    return witness


def name_of(message: Any) -> str:
    # The engine keeps message ids encoded, as a string with one byte of length.
    return encoded_message_id(message.content)[2:].decode()


def held_in(namespace: HostedNamespace, path: str) -> list[str]:
    """The ids in a queue and its dead-letter queue, in order."""
    entity: Any = namespace.namespace.find(path)
    return [name_of(message) for each in SubQueue for message in entity.sub_queue(each).peek(1, limit=100_000)]


def check_contents(world: Simulation, entity: str) -> None:
    """Check that all accepted messages are on the primary, unchanged."""
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


def check_order(world: Simulation, entity: str) -> None:
    """Check that accepted messages of each session first arrived in the order in which they were sent."""
    sessions: dict[str, dict[int, None]] = defaultdict(dict)
    for name in held_in(world.primary, entity):
        session, _, number = name.rpartition(".")
        if name in world.accepted:
            sessions[session].setdefault(int(number))
    for session, numbers in sessions.items():
        assert list(numbers) == sorted(numbers), f"session {session} is out of order: {list(numbers)}"
