"""Issue 3: whatever forwards to whatever, every accepted message is in exactly one place, four hops away at most."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from servicebus_emulator.engine.descriptions import EntityStatus, QueueDescription
from servicebus_emulator.engine.entities import QueueEntity, SubQueue
from servicebus_emulator.engine.errors import EntityDisabled
from tests.emulator.broker import Bench, content, token_of

PATHS = ["a", "b", "c", "d", "e", "f"]
paths = st.sampled_from(PATHS)


class ForwardingModel(RuleBasedStateMachine):
    """Queues that forward to each other as chance has it, in circles too."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = Bench()
        self.entities: dict[str, QueueEntity] = {
            path: self.bench.queue(QueueDescription(path, max_delivery_count=1)) for path in PATHS
        }
        self.kept: set[str] = set()
        self.sent = 0

    def _describe(self, path: str, **changes: object) -> None:
        self.bench.namespace.update_queue(replace(self.entities[path].description, **changes))

    @rule(path=paths, to=st.none() | paths)
    def forward(self, path: str, to: str | None) -> None:
        if path != to:
            self._describe(path, forward_to=to)

    @rule(path=paths, to=st.none() | paths)
    def forward_dead_letters(self, path: str, to: str | None) -> None:
        if path != to:
            self._describe(path, forward_dead_lettered_messages_to=to)

    @rule(path=paths, status=st.sampled_from([EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED]))
    def disable(self, path: str, status: EntityStatus) -> None:
        self._describe(path, status=status)

    @rule(path=paths, count=st.integers(1, 3))
    def send(self, path: str, count: int) -> None:
        names = {f"m{self.sent + offset}" for offset in range(count)}
        self.sent += count
        try:
            self.entities[path].send([content(name) for name in sorted(names)])
        except EntityDisabled:
            return
        self.kept |= names

    @rule(path=paths, part=st.sampled_from(SubQueue), completed=st.booleans())
    def receive(self, path: str, part: SubQueue, completed: bool) -> None:
        queue = self.entities[path].part(part)
        for message in queue.take(1):
            if completed:
                queue.complete(token_of(message))
                self.kept.remove(message.content.sections.decode())
            else:
                queue.abandon(token_of(message))

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        found = [
            message for each in self.entities.values() for queue in each.parts() for message in queue.peek(0, limit=999)
        ]
        assert sorted(message.content.sections.decode() for message in found) == sorted(self.kept)
        assert all(message.hops <= 4 for message in found)

    @invariant()
    def nothing_waits_where_it_should_be_passed_on(self) -> None:
        for entity in self.entities.values():
            assert entity.description.forward_to is None or entity.main.waiting_count() == 0
            dead = entity.part(SubQueue.DEAD_LETTER)
            assert entity.description.forward_dead_lettered_messages_to is None or dead.waiting_count() == 0


ForwardingModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestForwardingModel = ForwardingModel.TestCase
