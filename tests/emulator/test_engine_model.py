"""SPEC 6: whatever happens to a queue, every accepted message is in exactly one place."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_emulator.engine.entities import SubQueue
from servicebus_emulator.engine.errors import MessageLockLost, MessageNotFound
from servicebus_emulator.engine.message import Message
from servicebus_emulator.engine.timespan import TimeSpan
from tests.emulator.broker import Bench, content, token_of

LOCK = 10
MAX_DELIVERIES = 3
WINDOW = 30


class QueueModel(RuleBasedStateMachine):
    """A queue beside a model that knows each message's place and failed deliveries by its text."""

    tokens = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        lock = TimeSpan.of(timedelta(seconds=LOCK))
        self.entity = self.bench.queue(
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
        self.failed: dict[str, int] = {}
        self.expires: dict[str, int] = {}
        self.locks: dict[bytes, tuple[str, int, str]] = {}

    def _name(self, message: Message) -> str:
        return message.content.sections.decode()

    def _give_back(self, name: str, to: str, *, counted: bool) -> None:
        self.failed[name] += counted
        if self.failed[name] >= MAX_DELIVERIES:
            self.place[name] = "dead"
        elif self.expires.get(name, 2**62) <= self.bench.clock.now():
            self.place[name] = "gone"
        else:
            self.place[name] = to

    def _unlock(self, token: bytes) -> tuple[str, str] | None:
        held = self.locks.pop(token, None)
        return None if held is None else (held[0], held[2])

    @rule(count=st.integers(1, 3), lives=st.none() | st.integers(1, 3 * LOCK))
    def send(self, count: int, lives: int | None) -> None:
        names = [f"m{len(self.place) + offset}" for offset in range(count)]
        own = None if lives is None else lives * 1000
        self.entity.send([content(name, time_to_live=own) for name in names])
        for name in names:
            self.place[name], self.failed[name] = "waiting", 0
            self.seen[name] = self.bench.clock.now()
            if own is not None:
                self.expires[name] = self.bench.clock.now() + own

    @rule(after=st.integers(1, 2 * LOCK), cancelled=st.booleans())
    def schedule(self, after: int, cancelled: bool) -> None:
        name, due = f"m{len(self.place)}", self.bench.clock.now() + after * 1000
        numbers = self.entity.schedule([content(name, scheduled_for=due)])
        self.place[name], self.failed[name] = f"scheduled {due}", 0
        self.seen[name] = self.bench.clock.now()
        if cancelled:
            self.entity.cancel(numbers)
            self.place[name] = "gone"

    @rule(data=st.data(), scheduled=st.booleans())
    def send_again(self, data: st.DataObject, scheduled: bool) -> None:
        past = self.bench.clock.now() - WINDOW * 1000
        known = [name for name, seen_at in self.seen.items() if seen_at > past]
        if len(known) > 0:
            again = content(data.draw(st.sampled_from(known)))
            if scheduled:
                assert self.entity.schedule([again]) == [0]
            else:
                self.entity.send([again])

    @rule(target=tokens, count=st.integers(1, 4))
    def take(self, count: int):
        taken = self.entity.main.take(count)
        until = self.bench.clock.now() + LOCK * 1000
        for message in taken:
            assert self.place[self._name(message)] == "waiting"
            assert message.delivery_count == self.failed[self._name(message)]
            self.place[self._name(message)] = "locked"
            self.locks[token_of(message)] = (self._name(message), until, "waiting")
        assert len(taken) == count or "waiting" not in self.place.values()
        return multiple(*(token_of(message) for message in taken))

    @rule(count=st.integers(1, 2))
    def take_for_good(self, count: int) -> None:
        for message in self.entity.main.take(count, delete=True):
            assert self.place[self._name(message)] == "waiting"
            self.place[self._name(message)] = "gone"

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
        name, home = held
        if how in {"abandon", "release", "defer"}:
            self._give_back(name, "deferred" if how == "defer" else home, counted=how == "abandon")
        else:
            self.place[name] = {"complete": "gone", "dead-letter": "dead"}[how]

    @rule(token=tokens)
    def renew(self, token: bytes) -> None:
        try:
            until = self.entity.main.renew(token)
        except MessageLockLost:
            assert token not in self.locks
        else:
            name, _, home = self.locks[token]
            self.locks[token] = (name, until, home)

    @rule(target=tokens, data=st.data())
    def take_deferred(self, data: st.DataObject):
        number = data.draw(st.integers(1, self.entity.sequence.last + 1))
        try:
            (message,) = self.entity.main.take_deferred([number], session_id=None)
        except MessageNotFound:
            return multiple()
        assert self.place[self._name(message)] == "deferred"
        self.place[self._name(message)] = "locked"
        self.locks[token_of(message)] = (self._name(message), self.bench.clock.now() + LOCK * 1000, "deferred")
        return token_of(message)

    @rule(seconds=st.integers(1, 2 * LOCK))
    def time_passes(self, seconds: int) -> None:
        self.bench.go_on(seconds)
        now = self.bench.clock.now()
        for name, place in self.place.items():
            if place.startswith("scheduled") and int(place.split()[1]) <= now:
                self.place[name] = "waiting"
        for token, (name, until, home) in list(self.locks.items()):
            if until <= now:
                del self.locks[token]
                self._give_back(name, home, counted=True)
        for name, place in self.place.items():
            if place in {"waiting", "deferred"} and self.expires.get(name, 2**62) <= now:
                self.place[name] = "gone"

    @invariant()
    def every_message_is_where_the_model_says(self) -> None:
        places = list(self.place.values())
        main, dead = self.entity.main, self.entity.part(SubQueue.DEAD_LETTER)
        assert main.waiting_count() == places.count("waiting")
        assert main.scheduled_count == sum(place.startswith("scheduled") for place in places)
        assert main.active_count == sum(place in {"waiting", "locked", "deferred"} for place in places)
        kept = {self._name(message) for queue in (main, dead) for message in queue.peek(0, limit=1000)}
        assert kept == {name for name, place in self.place.items() if place != "gone"}
        assert dead.active_count == places.count("dead")
        numbers = [message.number for message in main.peek(0, limit=1000)]
        assert numbers == sorted(set(numbers))
        assert main.size_in_bytes + dead.size_in_bytes == sum(len(name) for name in kept)


QueueModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestQueueModel = QueueModel.TestCase
