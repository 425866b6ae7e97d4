"""One history: two processes send to entities of a pair, while the world breaks and kills what it can.

When it ends, everything is mended, and what must hold is checked: every accepted message is on the primary or was
dead-lettered for a reason that SPEC.md allows; with ``ordering="session"`` each session is in order; the backlog was
drained, every entity is healthy and every send has ended.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Any, Final

from azure.servicebus import ServiceBusMessage

from servicebus_emulator.engine.model.errors import EntityExists
from servicebus_emulator.engine.namespace.entities import SubQueue
from servicebus_pair.core import NamespacePair, PairOptions
from servicebus_pair.core.model.errors import PairClosedError, PairError, RejectedError, SendError, find_send_error
from servicebus_pair.core.protocol.backlog_queues import backlog_queue_paths, session_queue_paths
from servicebus_pair.core.send.sender import PairSender
from tests.simulation.clockwork import Clockwork
from tests.simulation.faults import Fault, Kind
from tests.simulation.nodes import Machine, Node, SharedStore
from tests.simulation.sdk import replaced_sdk
from tests.simulation.service import POISON, Service, name_of

__all__ = ["History", "Outcome"]

HOUR: Final = 3600.0
MINUTE: Final = 60.0
QUEUES: Final = 2
# Entities, whether they require sessions, and the sessions sent to them.
ENTITIES: Final[dict[str, tuple[bool, tuple[str | None, ...]]]] = {
    "flights": (False, ("a", "b", None)),
    "delays": (False, ("a",)),
    "gates": (True, ("a", "b")),
}
# Why a message that was accepted may be dead-lettered (SPEC section 6).
ALLOWED_REASONS: Final = frozenset({"EntityNotFound", "MessageTooLarge"})
# How long a send may take, and how long everything may take to recover once all is mended.
_OUTAGES: Final = (Kind.REFUSED, Kind.LOST_BEFORE, Kind.LOST_AFTER, Kind.SILENT, Kind.SILENT_DONE, Kind.TOKEN)
_VERDICT_TIME: Final = 2 * MINUTE
LONGEST_SEND: Final = HOUR
LONGEST_RECOVERY: Final = 3 * HOUR


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


class History:
    """Runs one history; the same arguments give the same history.

    :param hours: simulated time until everything is mended.
    :param poison: the share of messages that the service rejects whatever the entity.
    :param trace: receives a line for each thing that happens.
    """

    def __init__(
        self,
        seed: int,
        *,
        hours: float,
        ordered: bool,
        poison: float = 0.01,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.outcome = Outcome(seed, ordered)
        self.random = Random(f"plan {seed}")  # noqa: S311 - a repeatable plan
        self.ordered = ordered
        self.skew = 0.2
        self._poisonous = poison
        self._trace = trace
        self._digest = hashlib.sha256()
        self._hours = hours
        self.loop = Clockwork()
        self._ended = False
        self.loop.set_exception_handler(self._on_unhandled)
        self._end = hours * HOUR
        self.accepted: dict[str, None] = {}
        self._names: dict[str, int] = {}
        self._poison: set[str] = set()
        # Dead-lettered as rejected while the primary rejected good messages: what SPEC section 4 asks for.
        self._refused_in_time: set[str] = set()
        self._rejecting_until = 0.0
        self._scheduled: set[str] = set()
        self._first: dict[str, list[int]] = {}
        self._nodes: dict[str, Node] = {}
        self._gone: list[Node] = []
        self._writing = 0
        # Done when the primary breaks next.
        self._trouble = self.loop.create_future()
        self.store = SharedStore(Random(f"store {seed}"))  # noqa: S311
        self._failover = self.random.choice([0.0, 5.0, 60.0])
        self._ping = self.random.choice([10.0, 60.0])

    def options(self, *, enable_syphon: bool) -> PairOptions:
        """Return the options of a process."""
        return PairOptions(
            backlog_queue_count=QUEUES,
            failover_interval=timedelta(seconds=self._failover),
            ping_primary_interval=timedelta(seconds=self._ping),
            enable_syphon=enable_syphon,
            ordering="session" if self.ordered else "none",
        )

    def run(self) -> Outcome:
        """Run the history and return its outcome."""
        with _undisturbed(self.loop):
            try:
                self.primary = Service(self.loop, "contoso", random=Random(f"primary {self.outcome.seed}"))  # noqa: S311
                self.secondary = Service(self.loop, "contoso-dr", random=Random(f"secondary {self.outcome.seed}"))  # noqa: S311
                services = {"contoso": self.primary, "contoso-dr": self.secondary}
                # One history of four through the public interface only; sending that way takes twice as long.
                with replaced_sdk(services, preencoded=self.outcome.seed % 4 != 0):
                    self.loop.run_until_complete(self._live())
                    self._check()
            except Exception as error:
                self._violate(f"{type(error).__name__}: {error}")
                if self._trace is not None:
                    raise
            finally:
                self._ended = True
                with replaced_sdk({}):
                    self.loop.run_until_complete(self._reap())
                self.loop.close()
        self.outcome.digest = self._digest.hexdigest()
        return self.outcome

    # What happens

    def _on_unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A task that ended with an unexpected error, such as a syphon, would be missed by nobody."""
        error = context.get("exception")
        if error is not None and not self._ended:
            self._violate(f"unhandled: {type(error).__name__}: {error}")

    async def _live(self) -> None:
        for entity, (requires_session, _) in ENTITIES.items():
            self.primary.create_queue(entity, requires_session=requires_session)
        for path in backlog_queue_paths("contoso", QUEUES):
            self.secondary.create_queue(path, max_delivery_count=2**31 - 1)
        for path in session_queue_paths("contoso", QUEUES):
            self.secondary.create_queue(path, max_delivery_count=2**31 - 1, requires_session=True)
        self.primary.witness.on_stored = self._arrived
        self.secondary.witness.on_stored = lambda name: self.note("backlog", name)
        for name in ("p", "q"):
            self._start(name)
        tasks = [self._break_things(), self._kill_processes(), self._operate()]
        for entity, (_, sessions) in ENTITIES.items():
            for session in sessions:
                tasks.append(self._write(entity, session))
                self._writing += 1
        running = [self.loop.create_task(each) for each in tasks]
        await asyncio.sleep(self._end)
        self._mend()
        await self._recover(running)
        self.outcome.seconds = self.loop.time()

    def _start(self, name: str) -> None:
        self._nodes[name] = Node(self, name, enable_syphon=name == "q" or self.random.random() < 0.5)
        self.note("start", name)

    def killed(self, process: Machine) -> None:
        """Note that a process was killed, and start it again after a while."""
        self.outcome.kills += 1
        self.note("kill", process.name)
        for service in (self.primary, self.secondary):
            service.disconnect(process)
        node = self._nodes.pop(process.name)
        self._gone.append(node)
        node.died.set_result(None)
        pause = self.random.uniform(0.1, 90)
        self.loop.call_later(pause, self._start, process.name, context=self.loop.world)

    async def _break_things(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(1 / (5 * MINUTE)))
            self._break()

    def _break(self) -> None:
        self.outcome.faults += 1
        choice = self.random.random()
        duration = min(self.random.lognormvariate(4.0, 1.5), HOUR)
        if choice < 0.08:
            self._break_store(duration)
        elif choice < 0.10:
            self._delete_for(duration)
        else:
            service = self.primary if choice < 0.7 else self.secondary
            self._break_service(service, duration)

    def _break_service(self, service: Service, duration: float) -> None:
        random = self.random
        kinds = [each for each in Kind if service is self.primary or each is not Kind.NOT_FOUND]
        kind = random.choice(_OUTAGES if random.random() < 0.4 else kinds)
        paths = [each.path for each in service.namespace.list_queues()]
        path = None if random.random() < 0.5 else random.choice(paths)
        share = 1.0 if random.random() < 0.6 else random.uniform(0.1, 0.9)
        left = 10**9 if random.random() < 0.6 else random.randint(1, 5)
        delay = random.choice([0.5, 3.0, 12.0, 45.0])
        until = self.loop.time() + duration
        service.faults.active.append(Fault(kind, path, until, share, left, delay))
        if kind is Kind.REJECTED and service is self.primary:
            self._rejecting_until = max(self._rejecting_until, until)
        if kind in {Kind.REFUSED, Kind.LOST_BEFORE} and path is None:
            service.disconnect()
        if service is self.primary:
            self._trouble.set_result(None)
            self._trouble = self.loop.create_future()
        self.note("fault", service.name, kind.name, path, round(duration, 3), round(share, 3), left, delay)

    def _break_store(self, duration: float) -> None:
        what = self.random.choice(["slow", "failing", "hanging"])
        self.note("fault", "store", what, round(duration, 3))
        self.store.delay = self.random.uniform(0.5, 8.0) if what == "slow" else self.store.delay
        self.store.failing = what == "failing" or self.store.failing
        if what == "hanging" and self.store.hanging is None:
            self.store.hanging = self.loop.create_future()
        self.loop.call_later(duration, self._mend_store, context=self.loop.world)

    def _mend_store(self) -> None:
        self.store.delay, self.store.failing = 0.01, False
        hanging, self.store.hanging = self.store.hanging, None
        if hanging is not None:
            hanging.set_result(None)

    def _delete_for(self, duration: float) -> None:
        entity = self.random.choice(list(ENTITIES))
        try:
            self.primary.namespace.delete_queue(entity)
        except Exception:  # noqa: BLE001 - it is deleted already
            return
        self.note("fault", "deleted", entity, round(duration, 3))
        self.loop.call_later(duration, self._create, entity, context=self.loop.world)

    def _create(self, entity: str) -> None:
        try:
            self.primary.create_queue(entity, requires_session=ENTITIES[entity][0])
        except EntityExists:
            return

    async def _kill_processes(self) -> None:
        while True:
            await asyncio.sleep(self.random.expovariate(1 / HOUR))
            if self._nodes:
                node = self._nodes[self.random.choice(sorted(self._nodes))]
                node.process.fuse = self.random.randint(1, 40)

    async def _operate(self) -> None:
        """Do by hand, or by a DAG, what may be done at any time."""
        while True:
            await asyncio.sleep(self.random.expovariate(1 / (20 * MINUTE)))
            if self._nodes:
                self._operate_once(self._nodes[self.random.choice(sorted(self._nodes))])

    def _operate_once(self, node: Node) -> None:
        entity, pair, random = self.random.choice(list(ENTITIES)), node.pair, self.random
        actions: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "fail over": lambda: pair.fail_over(entity, reason="by hand"),
            "ping": lambda: pair.ping(entity),
            "drain": lambda: pair.syphon().drain(),
            "drain for a while": lambda: _drain_for_a_while(pair, random.uniform(0, 5)),
            "close": lambda: self._close(node),
        }
        if not self.ordered:  # after a manual change, order is up to the caller
            actions["mark healthy"] = lambda: pair.mark_healthy(entity)
        name = random.choice(list(actions))
        self.note(node.name, name, entity)
        node.process.start(_quietly(actions[name]))

    async def _close(self, node: Node) -> None:
        await node.pair.close()
        if not node.process.dead:
            node.process.kill()

    def _mend(self) -> None:
        self.note("mended")
        for service in (self.primary, self.secondary):
            service.faults.active.clear()
        self._mend_store()
        for entity in ENTITIES:
            self._create(entity)
        for node in self._nodes.values():
            node.process.fuse = None

    async def _recover(self, running: Sequence[asyncio.Task[None]]) -> None:
        """Wait until the running processes have delivered and drained everything and found everything healthy."""
        for task in running[:3]:
            task.cancel()
        mended = self.loop.time()
        while self.loop.time() - mended < LONGEST_RECOVERY:
            for node in self._nodes.values():
                node.process.fuse = None
            await asyncio.sleep(30)
            if not self._writing and not self._unfinished():
                break
        else:
            self._violate(f"{LONGEST_RECOVERY:g} s after everything was mended: {self._unfinished()}")
        for task in running:
            if task.done() and not task.cancelled() and task.exception() is not None:
                self._violate(f"the plan failed: {task.exception()!r}")
            task.cancel()

    def _unfinished(self) -> str:
        left = {
            path: self.secondary.entity(path).counts().active
            for path in (*backlog_queue_paths("contoso", QUEUES), *session_queue_paths("contoso", QUEUES))
        }
        failed_over = [
            f"{entity} is failed over for {name}"
            for name, node in self._nodes.items()
            for entity in ENTITIES
            if node.pair.health(entity).failed_over
        ]
        sends = [f"{self._writing} sends do not end"] if self._writing else []
        held = [f"{path} holds {count}" for path, count in left.items() if count]
        return ", ".join([*sends, *held, *failed_over])

    # The application

    async def _write(self, entity: str, session: str | None) -> None:
        """Send messages of one session, one send after another, from whichever process is there."""
        random = Random(f"writer {self.outcome.seed} {entity} {session}")  # noqa: S311
        writer = f"{entity}.{session}"
        try:
            while self.loop.time() < self._end:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._end - self.loop.time()):
                        await self._pause(random)
                waiting = [self._new_message(writer, session, random) for _ in range(_batch_size(random))]
                longest = 2.0
                while waiting := await self._send(entity, waiting, random):
                    await asyncio.sleep(random.uniform(0.01, longest))
                    longest = min(2 * longest, 10 * MINUTE)
        finally:
            self._writing -= 1

    async def _pause(self, random: Random) -> None:
        """Wait between two sends: briefly, or for long unless the primary breaks."""
        choice = random.random()
        if choice < 0.4:
            await asyncio.sleep(random.uniform(0.05, 10))
        elif choice < 0.7:
            await asyncio.sleep(random.expovariate(1 / (30 * MINUTE)))
        else:
            await asyncio.wait({self._trouble}, timeout=random.expovariate(1 / HOUR))
            await asyncio.sleep(random.uniform(0, 20))

    def _new_message(self, writer: str, session: str | None, random: Random) -> ServiceBusMessage:
        number = self._names[writer] = self._names.get(writer, 0) + 1
        name = f"{writer}.{number}"
        self.outcome.messages += 1
        properties: dict[str | bytes, Any] = {"name": name}
        life = timedelta(days=1)
        if random.random() < self._poisonous:
            self._poison.add(name)
            self.outcome.poison += 1
            match random.randrange(3):
                case 0:
                    properties[POISON.decode()] = "x"
                case 1:
                    properties["large"] = "x" * 33_000
                case _:
                    life = timedelta()
        size = 20_000 if random.random() < 0.02 else 10
        return ServiceBusMessage(
            b"x" * size, message_id=name, session_id=session, time_to_live=life, application_properties=properties
        )

    async def _send(self, entity: str, messages: list[ServiceBusMessage], random: Random) -> list[ServiceBusMessage]:
        """Send from one process; return what must be sent again."""
        if not self._nodes:
            await asyncio.sleep(1)
            return messages
        node = self._nodes[random.choice(sorted(self._nodes))]
        timeout = random.choice([20.0, 120.0, None])
        names = [str(each.message_id) for each in messages]
        at = None
        if not self.ordered and random.random() < 0.03:
            at = datetime.fromtimestamp(self.loop.wall_clock() + random.uniform(0, HOUR), UTC)
        self.note(node.name, "send", entity, names[0], len(names), timeout)
        self.outcome.sends += 1
        linger = random.choice([0.0, 0.0, 20.0, 100.0])
        started = self.loop.time()
        task = node.process.start(self._send_once(node, entity, messages, timeout=timeout, at=at, linger=linger))
        if random.random() < 0.02:
            self.loop.call_later(random.uniform(0, 5), task.cancel, context=self.loop.world)
        await asyncio.wait({task, node.died}, timeout=LONGEST_SEND, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and not node.died.done():
            self._violate(f"a send of {names[0]} with timeout {timeout} did not end within {LONGEST_SEND:g} s")
            await asyncio.wait({task, node.died}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            left = [each for each in messages if each.message_id not in self.accepted]
        else:
            left = task.result()
            self.note(node.name, "sent", entity, names[0], len(left), round(self.loop.time() - started, 6))
        return [each for each in left if each.message_id not in self._poison or not task.done()]

    async def _send_once(
        self,
        node: Node,
        entity: str,
        messages: list[ServiceBusMessage],
        *,
        timeout: float | None,
        at: datetime | None,
        linger: float,
    ) -> list[ServiceBusMessage]:
        """Send and return the unsent messages; accepted and unsent together must be all messages."""
        async with AsyncExitStack() as stack:
            try:
                sender = await stack.enter_async_context(node.sender(entity, linger=linger))
            except PairError:
                return messages  # nothing was taken
            return await self._account_of(node, sender, messages, timeout=timeout, at=at)

    async def _account_of(
        self,
        node: Node,
        sender: PairSender,
        messages: list[ServiceBusMessage],
        *,
        timeout: float | None,
        at: datetime | None,
    ) -> list[ServiceBusMessage]:
        account: SendError | None
        given = [str(each.message_id) for each in messages]
        try:
            if at is None:
                result = await sender.send(messages, timeout=timeout)
            else:
                result = (await sender.schedule(messages, at, timeout=timeout)).sent
        except asyncio.CancelledError as error:
            account = find_send_error(error)
            if account is None:
                return messages
        except SendError as error:
            account = error
        except PairClosedError:
            return messages  # nothing was taken
        except PairError as error:
            self._violate(f"a send ended without an account: {type(error).__name__}: {error}")
            return messages
        else:
            self._account(given, result.message_ids, [])
            return []
        self.note(node.name, type(account).__name__, type(account.cause).__name__)
        unsent = [_id_of(each) for each in account.unsent]
        self._account(given, account.result.message_ids, unsent)
        if isinstance(account.cause, RejectedError):
            # A verdict of the service on these messages: what follows them was delivered, they are not sent again.
            last = max((given.index(name) for name in account.result.message_ids), default=-1)
            unsent = [name for name in unsent if given.index(name) > last]
        return [each for each in messages if each.message_id in unsent]

    def _account(self, given: Sequence[str], accepted: Sequence[str], unsent: Sequence[str]) -> None:
        if Counter(given) != Counter([*accepted, *unsent]):
            self._violate(f"of {given} a send accounts for {list(accepted)} and {list(unsent)}")
        for name in accepted:
            if name not in self.accepted:
                self._violate(f"{name} is reported as accepted, but no event said so")
            self.accept(name)

    def accept(self, name: str) -> None:
        """Note that a message was accepted."""
        self.accepted[name] = None

    def refused(self, name: str, reason: str) -> None:
        """Note that a syphon dead-lettered a message."""
        if reason == "Rejected" and self.loop.time() < self._rejecting_until + _VERDICT_TIME:
            self._refused_in_time.add(name)

    # What must hold

    def _arrived(self, name: str) -> None:
        self.note("primary", name)
        if self.primary.witness.stored[name] == 1:
            writer, _, number = name.rpartition(".")
            self._first.setdefault(writer, []).append(int(number))

    def _check(self) -> None:
        outcome, stored = self.outcome, self.primary.witness.stored
        outcome.accepted = len(self.accepted)
        dead = self._dead_letters()
        outcome.dead_lettered = len(dead)
        for name in self.accepted:
            refused = name in dead and (
                name in self._poison or name in self._refused_in_time or dead[name] in ALLOWED_REASONS
            )
            if not stored[name] and not refused:
                outcome.lost += 1
                where = f"dead-lettered as {dead[name]}" if name in dead else "nowhere"
                self._violate(f"{name} was accepted and is {where}")
        outcome.duplicates = sum(count - 1 for count in stored.values() if count > 1)
        outcome.strikes = self.primary.faults.strikes + self.secondary.faults.strikes
        for writer, numbers in self._first.items():
            if not writer.endswith("None"):
                outcome.disorder += self._disorder(writer, numbers)
        outcome.ordered_disorder = outcome.disorder if self.ordered else 0

    def _disorder(self, writer: str, numbers: Sequence[int]) -> int:
        late, furthest = [], 0
        for number in numbers:
            if number < furthest:
                late.append(f"{number} after {furthest}")
            furthest = max(furthest, number)
        if late and self.ordered:
            self._violate(f"{writer} is out of order {len(late)} times, first {late[0]}")
        return len(late)

    def _dead_letters(self) -> dict[str, str | None]:
        paths = (*backlog_queue_paths("contoso", QUEUES), *session_queue_paths("contoso", QUEUES))
        return {
            name_of(message): None if message.dead_letter is None else message.dead_letter.reason
            for path in paths
            for message in self.secondary.held(path, SubQueue.DEAD_LETTER)
        }

    def _violate(self, what: str) -> None:
        self.note("VIOLATION", what)
        self.outcome.violations.append(f"at {self.loop.time():.3f} s: {what}")

    def note(self, *what: Any) -> None:
        """Add a line to the trace, by whose digest two runs are compared."""
        if self._ended:
            return
        line = f"{self.loop.time():.6f} " + " ".join(map(str, what))
        self._digest.update(line.encode())
        if self._trace is not None:
            self._trace(line)

    async def _reap(self) -> None:
        """End all tasks, because Python warns about those that never end."""
        for node in (*self._gone, *self._nodes.values()):
            node.process.dead = True
            node.process.resume()
        for _ in range(50):
            left = asyncio.all_tasks(self.loop) - {asyncio.current_task()}
            if not left:
                return
            for task in sorted(left, key=hash):
                task.cancel()
            await asyncio.wait(left, timeout=10)


async def _quietly(act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Do something that the state of the world may prevent."""
    with suppress(PairError, asyncio.TimeoutError):
        await act()


async def _drain_for_a_while(pair: NamespacePair, seconds: float) -> None:
    syphon = pair.syphon()
    draining = asyncio.ensure_future(syphon.drain())
    await asyncio.sleep(seconds)
    syphon.stop()
    await draining


def _batch_size(random: Random) -> int:
    return random.choice([1, 1, 2, 3]) if random.random() < 0.97 else 40


def _id_of(message: Any) -> str:
    properties = getattr(message, "properties", None)
    return str(message.message_id if properties is None else properties.message_id)


@contextmanager
def _undisturbed(loop: Clockwork) -> Iterator[None]:
    """Patch the clocks; keep the garbage collector, whose timing differs between runs, and log lines away."""
    with ExitStack() as stack:
        stack.enter_context(loop.patched_clocks())
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        if gc.isenabled():
            gc.collect()
            gc.disable()
            stack.callback(gc.enable)
        yield
