"""Arbitrary operations on a queue: every accepted message is in exactly one place."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_emulator.engine.model.errors import MessageLockLost, MessageNotFound
from servicebus_emulator.engine.model.message import Message
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.entities import SubQueue
from tests.emulator.support.engine import EngineHarness, content, token_of
from tests.examples import how_many

LOCK = 10
MAX_DELIVERIES = 3
WINDOW = 30


class QueueModel(RuleBasedStateMachine):
    """Compares a queue with a model of each message's place and delivery count, by message text."""

    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.harness = EngineHarness()
        lock = TimeSpan.of(timedelta(seconds=LOCK))
        self.entity = self.harness.queue(
            QueueDescription(
                "flights",
                lock_duration=lock,
                max_delivery_count=MAX_DELIVERIES,
                requires_duplicate_detection=True,
                duplicate_detection_history_time_window=TimeSpan.of(timedelta(seconds=WINDOW)),
            )
        )
        self.seen: dict[str, int] = {}
        self.place: dict[str, str] = {}
        self.delivery_counts: dict[str, int] = {}
        self.expires: dict[str, int] = {}
        self.locks: dict[bytes, tuple[str, int, str]] = {}

    def _name(self, message: Message) -> str:
        return message.content.sections.decode()

    def _return_to_queue(self, name: str, to: str, *, increment: bool) -> None:
        self.delivery_counts[name] += increment
        if self.delivery_counts[name] >= MAX_DELIVERIES:
            self.place[name] = "dead"
        elif self.expires.get(name, 2**62) <= self.harness.clock.now():
            self.place[name] = "removed"
        else:
            self.place[name] = to

    def _unlock(self, token: bytes) -> tuple[str, str] | None:
        held = self.locks.pop(token, None)
        return None if held is None else (held[0], held[2])

    @rule(count=st.integers(1, 3), time_to_live=st.none() | st.integers(1, 3 * LOCK))
    def send(self, count: int, time_to_live: int | None) -> None:
        names = [f"m{len(self.place) + offset}" for offset in range(count)]
        own = None if time_to_live is None else time_to_live * 1000
        self.entity.send([content(name, time_to_live=own) for name in names])
        for name in names:
            self.place[name], self.delivery_counts[name] = "ready", 0
            self.seen[name] = self.harness.clock.now()
            if own is not None:
                self.expires[name] = self.harness.clock.now() + own

    @rule(after=st.integers(1, 2 * LOCK), cancelled=st.booleans())
    def schedule(self, after: int, cancelled: bool) -> None:
        name, due = f"m{len(self.place)}", self.harness.clock.now() + after * 1000
        numbers = self.entity.schedule([content(name, scheduled_for=due)])
        self.place[name], self.delivery_counts[name] = f"scheduled {due}", 0
        self.seen[name] = self.harness.clock.now()
        if cancelled:
            self.entity.cancel(numbers)
            self.place[name] = "removed"

    @rule(data=st.data(), scheduled=st.booleans())
    def send_again(self, data: st.DataObject, scheduled: bool) -> None:
        past = self.harness.clock.now() - WINDOW * 1000
        known = [name for name, seen_at in self.seen.items() if seen_at > past]
        if len(known) > 0:
            again = content(data.draw(st.sampled_from(known)))
            if scheduled:
                assert self.entity.schedule([again]) == [0]
            else:
                self.entity.send([again])

    @rule(target=tokens, count=st.integers(1, 4))
    def receive(self, count: int):
        received = self.entity.main.receive(count)
        until = self.harness.clock.now() + LOCK * 1000
        for message in received:
            assert self.place[self._name(message)] == "ready"
            assert message.delivery_count == self.delivery_counts[self._name(message)]
            self.place[self._name(message)] = "locked"
            self.locks[token_of(message)] = (self._name(message), until, "ready")
        assert len(received) == count or "ready" not in self.place.values()
        return multiple(*(token_of(message) for message in received))

    @rule(count=st.integers(1, 2))
    def receive_and_delete(self, count: int) -> None:
        for message in self.entity.main.receive(count, delete=True):
            assert self.place[self._name(message)] == "ready"
            self.place[self._name(message)] = "removed"

    @rule(token=consumes(tokens), how=st.sampled_from(["complete", "abandon", "release", "defer", "dead-letter"]))
    def settle(self, token: bytes, how: str) -> None:
        queue = self.entity.main
        actions = {
            "complete": lambda: queue.complete(token),
            "abandon": lambda: queue.abandon(token),
            "release": lambda: queue.release(token),
            "defer": lambda: queue.defer(token),
            "dead-letter": lambda: queue.dead_letter(token, reason=None, description=None),
        }
        held = self._unlock(token)
        try:
            actions[how]()
        except MessageLockLost:
            assert held is None
            return
        assert held is not None
        name, origin = held
        if how in {"abandon", "release", "defer"}:
            self._return_to_queue(name, "deferred" if how == "defer" else origin, increment=how == "abandon")
        else:
            self.place[name] = {"complete": "removed", "dead-letter": "dead"}[how]

    @rule(token=tokens)
    def renew(self, token: bytes) -> None:
        try:
            until = self.entity.main.renew_lock(token)
        except MessageLockLost:
            assert token not in self.locks
        else:
            name, _, origin = self.locks[token]
            self.locks[token] = (name, until, origin)

    @rule(target=tokens, data=st.data())
    def receive_deferred(self, data: st.DataObject):
        number = data.draw(st.integers(1, self.entity.sequence.last + 1))
        try:
            (message,) = self.entity.main.receive_deferred([number], session_id=None)
        except MessageNotFound:
            return multiple()
        assert self.place[self._name(message)] == "deferred"
        self.place[self._name(message)] = "locked"
        self.locks[token_of(message)] = (self._name(message), self.harness.clock.now() + LOCK * 1000, "deferred")
        return token_of(message)

    @rule(seconds=st.integers(1, 2 * LOCK))
    def advance_time(self, seconds: int) -> None:
        self.harness.advance(seconds)
        now = self.harness.clock.now()
        for name, place in self.place.items():
            if place.startswith("scheduled") and int(place.split()[1]) <= now:
                self.place[name] = "ready"
        for token, (name, until, origin) in list(self.locks.items()):
            if until <= now:
                del self.locks[token]
                self._return_to_queue(name, origin, increment=True)
        for name, place in self.place.items():
            if place in {"ready", "deferred"} and self.expires.get(name, 2**62) <= now:
                self.place[name] = "removed"

    @invariant()
    def every_message_is_where_the_model_says(self) -> None:
        places = list(self.place.values())
        main, dead = self.entity.main, self.entity.sub_queue(SubQueue.DEAD_LETTER)
        assert main.ready_count() == places.count("ready")
        assert main.scheduled_count == sum(place.startswith("scheduled") for place in places)
        assert main.active_count == sum(place in {"ready", "locked", "deferred"} for place in places)
        stored = {self._name(message) for queue in (main, dead) for message in queue.peek(0, limit=1000)}
        assert stored == {name for name, place in self.place.items() if place != "removed"}
        assert dead.active_count == places.count("dead")
        numbers = [message.sequence_number for message in main.peek(0, limit=1000)]
        assert numbers == sorted(set(numbers))
        assert main.size_in_bytes + dead.size_in_bytes == sum(len(name) for name in stored)


QueueModel.TestCase.settings = settings(max_examples=how_many(60), stateful_step_count=40)
TestQueueModel = QueueModel.TestCase
