"""The processes of a history, and the store by which they share the health of entities."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.core import Endpoint, NamespacePair
from servicebus_pair.core.model.events import (
    DeadLettered,
    Event,
    HealthChanged,
    MessagesAccepted,
    MessagesUnspooled,
    Route,
)
from servicebus_pair.core.model.interfaces import InMemoryHealthStore, SystemClock
from servicebus_pair.core.send.sender import PairSender
from tests.simulated_time import Process, current_process
from tests.simulation.clockwork import Clockwork

if TYPE_CHECKING:
    from tests.simulation.history import History

# Seconds by which the clock of a process may be wrong.
_SKEW: Final = 0.2


def endpoint_of(namespace: str) -> Endpoint:
    """Return an endpoint that ``sdk`` resolves."""
    key = "SharedAccessKeyName=simulated;SharedAccessKey=c2ltdWxhdGVk"
    return Endpoint.from_connection_string(f"Endpoint=sb://{namespace}.servicebus.windows.net/;{key}")


class Machine(Process):
    """A process that can be killed in the middle of what it does.

    :ivar fuse: after how many operations on a namespace or the store it is killed.
    """

    def __init__(self, loop: Clockwork, name: str, *, on_killed: Callable[[Machine], None]) -> None:
        super().__init__(loop, name)
        self.fuse: int | None = None
        self._on_killed = on_killed

    def burn_down(self) -> bool:
        """Count an operation; return whether the process was killed now."""
        if self.fuse is None:
            return self.dead
        self.fuse -= 1
        if self.fuse <= 0:
            self.fuse = None
            self.kill()
        return self.dead

    def kill(self) -> None:
        super().kill()
        self._on_killed(self)


@dataclass(slots=True)
class SharedStore:
    """A health store in which a call takes time, and takes effect at some moment of it.

    :ivar delay: the longest duration of a call, in seconds.
    :ivar failing: whether calls fail.
    :ivar hanging: calls do not end before this is done.
    """

    random: Random
    inner: InMemoryHealthStore = field(default_factory=InMemoryHealthStore)
    delay: float = 0.01
    failing: bool = False
    hanging: asyncio.Future[None] | None = None

    async def load(self, entity: str) -> Any:
        return await self._call(lambda: self.inner.load(entity))

    async def save(self, entity: str, health: Any) -> None:
        await self._call(lambda: self.inner.save(entity, health))

    async def _call(self, act: Callable[[], Any]) -> Any:
        process = current_process()
        if isinstance(process, Machine) and process.burn_down():
            await asyncio.get_running_loop().create_future()
        if self.hanging is not None:
            await asyncio.wait({self.hanging})
            raise OSError("the connection to the store was lost")
        await asyncio.sleep(self.random.uniform(0, self.delay))
        if self.failing:
            raise OSError("the store cannot be reached")
        result = await act()
        if self.random.random() < 0.3:
            await asyncio.sleep(self.random.uniform(0, self.delay))
        return result


class _SkewedClock(SystemClock):
    def __init__(self, skew: float) -> None:
        super().__init__()
        self._skew = skew

    def now(self) -> float:
        return super().now() + self._skew


@dataclass(slots=True)
class _OpenSender:
    sender: PairSender
    users: int = 0
    closing: asyncio.TimerHandle | None = None


class Node:
    """One process of the application, with its pair and its senders."""

    def __init__(self, history: History, name: str, *, enable_syphon: bool) -> None:
        self.history = history
        self.name = name
        self.process = Machine(history.loop, name, on_killed=history.killed)
        self.died = history.loop.create_future()
        self._senders: dict[str, _OpenSender] = {}
        skew = history.random.uniform(-_SKEW, _SKEW)
        self.pair: NamespacePair = self.process.call(
            lambda: NamespacePair(
                endpoint_of("contoso"),
                endpoint_of("contoso-dr"),
                history.options(enable_syphon=enable_syphon),
                store=history.store,
                observers=[self],
                clock=_SkewedClock(skew),
                random_source=Random(history.random.random()),  # noqa: S311 - a repeatable choice
            )
        )
        self.process.start(self._open())

    async def _open(self) -> None:
        await self.pair.__aenter__()

    def observe(self, event: Event) -> None:
        """Note what the product says that it did."""
        history = self.history
        match event:
            case MessagesAccepted():
                history.record.note(self.name, "accepted", event.route, len(event.messages))
                for ref in event.messages:
                    history.verdict.accept(ref.message_id)
                if event.queue is not None:
                    history.record.outcome.diverted += len(event.messages)
                if event.route is Route.SPOOLED:
                    history.record.outcome.spooled += len(event.messages)
            case MessagesUnspooled():
                history.record.note(self.name, "unspooled", event.route, len(event.messages))
            case DeadLettered():
                history.record.note(self.name, "dead-lettered", event.message_id, event.reason)
                history.verdict.refused(event.message_id, event.reason)
            case HealthChanged():
                history.record.note(self.name, event.entity, event.before.state, event.after.state, event.after.reason)
            case _:
                return

    @asynccontextmanager
    async def sender(self, entity: str, *, linger: float) -> AsyncIterator[PairSender]:
        """Use the sender of this process, which stays open for ``linger`` seconds or until it is used again."""
        held = self._senders.get(entity)
        if held is None:
            sender = await self.pair.sender(entity).__aenter__()
            held = self._senders.setdefault(entity, _OpenSender(sender))
        held.users += 1
        if held.closing is not None:
            held.closing.cancel()
            held.closing = None
        try:
            yield held.sender
        finally:
            held.users -= 1
            if held.users == 0:
                held.closing = self.history.loop.call_later(linger, self._close_sender, entity)

    def _close_sender(self, entity: str) -> None:
        sender = self._senders.pop(entity).sender
        self.process.start(sender.__aexit__(None, None, None))
