"""One namespace in memory: the embedded Service Bus's engine, and what its broker does for waiting receivers."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, cast

from servicebus_emulator.amqp.codec.message_checks import check_messages
from servicebus_emulator.amqp.codec.property_codec import AmqpPropertyCodec
from servicebus_emulator.amqp.codec.raw_encoding import MalformedValueError
from servicebus_emulator.amqp.codec.transfer_decoder import decode_message, encoded_message_id
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.model.errors import BrokerError, InvalidArgument, UnprocessableMessage
from servicebus_emulator.engine.model.message import Content, Message
from servicebus_emulator.engine.model.session_locks import SessionLock
from servicebus_emulator.engine.namespace.entities import QueueEntity, SubQueue
from servicebus_emulator.engine.namespace.entity_registry import deleted_error
from servicebus_emulator.engine.namespace.namespace import Namespace
from servicebus_emulator.engine.queue.limits import check_encoded_size, receive_error
from servicebus_emulator.engine.queue.queue import MessageQueue
from servicebus_emulator.engine.runtime.journal import Journal
from tests.simulation.clockwork import Clockwork
from tests.simulation.faults import Faults

if TYPE_CHECKING:
    from tests.simulated_time import Process

# A message that contains this is rejected, as one that the service cannot digest for a reason of its own.
POISON: Final = b"x-simulated-poison"


class _Witness(Journal):
    """Records every message that is stored."""

    def __init__(self) -> None:
        self.stored: Counter[str] = Counter()
        self.on_stored: Callable[[str], None] = lambda _: None

    def add(self, queue: int, message: Any) -> None:
        self.add_all(queue, (message,))

    def add_all(self, queue: int, messages: Iterable[Any]) -> None:  # noqa: ARG002 - the port's
        for message in messages:
            name = name_of(message)
            self.stored[name] += 1
            self.on_stored(name)


class _EngineClock:
    def __init__(self, loop: Clockwork) -> None:
        self._loop = loop

    def now(self) -> int:
        return int(self._loop.wall_clock() * 1000)


@dataclass(slots=True, eq=False)
class Receiving:
    """A receiver that waits for messages, or for a session if it has none yet."""

    entity: QueueEntity
    queue: MessageQueue
    limit: int
    found: asyncio.Future[Any]
    process: Process | None
    session_lock: SessionLock | None = None
    wants_session: bool = False


class Service:
    """The entities and faults of one namespace.

    :ivar incarnation: a new number whenever all connections broke.
    """

    def __init__(self, loop: Clockwork, name: str, *, random: Random) -> None:
        self.name = name
        self.loop = loop
        self.random = random
        self.faults = Faults(random)
        self.incarnation = 0
        self.witness = _Witness()
        self._numbers = 0
        self.namespace = Namespace(
            name,
            clock=_EngineClock(loop),
            journal=self.witness,
            identify=encoded_message_id,
            random_bytes=random.randbytes,
            codec=AmqpPropertyCodec(),
        )
        self._waiting: dict[int, deque[Receiving]] = {}
        self._sessions: list[tuple[MessageQueue, SessionLock, Process | None]] = []
        self._cycle_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_due = 0
        self.namespace.on_effects(self._schedule_cycle)

    def create_queue(self, path: str, **settings: Any) -> None:
        """Create a queue."""
        self.namespace.create_queue(QueueDescription(path, **settings))

    def entity(self, path: str) -> QueueEntity:
        """:raises EntityNotFound: no queue has this path."""
        return cast("QueueEntity", self.namespace.find(path))

    def send(self, entity: QueueEntity, encoded: Sequence[bytes]) -> None:
        """Store one message, or the messages of a batch, as the embedded Service Bus does for a delivery.

        :raises BrokerError: they are rejected.
        """
        entity.send(self._decoded(entity, encoded))

    def schedule(self, entity: QueueEntity, encoded: Sequence[bytes]) -> list[int]:
        """Schedule messages and return their sequence numbers. :raises BrokerError: they are rejected."""
        return entity.schedule(self._decoded(entity, encoded))

    def _decoded(self, entity: QueueEntity, encoded: Sequence[bytes]) -> list[Content]:
        error = deleted_error(entity)
        if error is not None:
            raise error
        size = sum(map(len, encoded))
        check_encoded_size(size, messages=len(encoded), description=entity.description)
        try:
            contents = [decode_message(each, new_id=self._new_id) for each in encoded]
        except MalformedValueError as malformed:
            raise InvalidArgument(str(malformed)) from malformed
        check_messages(contents)
        if any(POISON in each for each in encoded):
            raise UnprocessableMessage("The service was unable to process the request; please retry the operation.")
        return contents

    def _new_id(self) -> str:
        self._numbers += 1
        return f"{self.name}-{self._numbers}"

    # Receivers

    def receive(self, receiving: Receiving) -> None:
        """Give a receiver what there is, or let it wait."""
        if not self._try(receiving):
            self._waiting.setdefault(receiving.queue.key, deque()).append(receiving)
            self._schedule_cycle()

    def stop_receiving(self, receiving: Receiving) -> None:
        """Forget a waiting receiver."""
        waiting = self._waiting.get(receiving.queue.key)
        if waiting is not None and receiving in waiting:
            waiting.remove(receiving)
            if not waiting:
                del self._waiting[receiving.queue.key]

    def accepted(self, queue: MessageQueue, lock: SessionLock, process: Process | None) -> None:
        """Remember who holds a session."""
        self._sessions.append((queue, lock, process))

    def close_session(self, queue: MessageQueue, lock: SessionLock) -> None:
        """Release a session."""
        self._sessions = [each for each in self._sessions if each[1] is not lock]
        queue.close_session(lock)

    def disconnect(self, process: Process | None = None) -> None:
        """Break the connections of a process, or all of them: sessions are released, locks of messages stay."""
        if process is None:
            self.incarnation += 1
        for waiting in list(self._waiting.values()):
            for receiving in list(waiting):
                if process is None or receiving.process is process:
                    self.stop_receiving(receiving)
                    if not receiving.found.done():
                        receiving.found.set_result(None)
        for queue, lock, owner in list(self._sessions):
            if process is None or owner is process:
                self.close_session(queue, lock)

    def _try(self, receiving: Receiving) -> bool:
        if receiving.found.done():
            return True
        try:
            found = self._found(receiving)
        except BrokerError as error:
            receiving.found.set_exception(error)
            return True
        if not found:
            return False
        receiving.found.set_result(found)
        return True

    def _found(self, receiving: Receiving) -> list[Message] | SessionLock | None:
        if not receiving.wants_session:
            return receiving.queue.receive(receiving.limit, session_lock=receiving.session_lock)
        lock = receiving.queue.accept_session(None)
        if lock is not None:
            self.accepted(receiving.queue, lock, receiving.process)
        return lock

    # As the broker of the embedded Service Bus, only for receivers that wait

    def _schedule_cycle(self) -> None:
        if self._waiting and not self._cycle_due:
            self._cycle_due = True
            self.loop.call_soon(self._cycle, context=self.loop.world)

    def _cycle(self) -> None:
        self._cycle_due = False
        self.namespace.advance()
        effects = self.namespace.take_effects()
        changed = [each for each in effects.changed if isinstance(each, MessageQueue) and each.key in self._waiting]
        for queue in sorted(changed, key=lambda each: each.key):
            for receiving in list(self._waiting[queue.key]):
                if self._try(receiving):
                    self.stop_receiving(receiving)
        if effects.invalidated:
            self._end_invalid()
        self._set_timer()

    def _end_invalid(self) -> None:
        for waiting in list(self._waiting.values()):
            for receiving in list(waiting):
                entity = receiving.entity
                if entity.deleted or receive_error(entity.description) is not None:
                    self.stop_receiving(receiving)
                    if not receiving.found.done():
                        receiving.found.set_result(None)

    def _set_timer(self) -> None:
        due = self.namespace.next_due() if self._waiting else None
        if due is None or (self._timer is not None and self._timer_due <= due):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = due
        delay = max(0.0, due / 1000 - self.loop.wall_clock()) + 0.001
        self._timer = self.loop.call_later(delay, self._on_timer, context=self.loop.world)

    def _on_timer(self) -> None:
        self._timer = None
        self._schedule_cycle()

    # What is where

    def held(self, path: str, sub_queue: SubQueue = SubQueue.MAIN) -> list[Message]:
        """Return the messages of a queue in order."""
        return self.entity(path).sub_queue(sub_queue).peek(1, limit=10**9)


def name_of(message: Any) -> str:
    """Return the message id, which the engine keeps encoded: a string with one byte of length."""
    return encoded_message_id(message.content)[2:].decode()
