"""Arbitrary forwarding: every accepted message is in exactly one place after at most four hops."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from servicebus_emulator.engine.model.descriptions import EntityStatus, QueueDescription
from servicebus_emulator.engine.model.errors import EntityDisabled
from servicebus_emulator.engine.namespace.entities import QueueEntity, SubQueue
from tests.emulator.support.engine import EngineHarness, content, token_of
from tests.examples import how_many

PATHS = ["a", "b", "c", "d", "e", "f"]
paths = st.sampled_from(PATHS)


class ForwardingModel(RuleBasedStateMachine):
    """Queues that forward to each other arbitrarily, including cycles."""

    def __init__(self) -> None:
        super().__init__()
        self.harness = EngineHarness()
        self.entities: dict[str, QueueEntity] = {
            path: self.harness.queue(QueueDescription(path, max_delivery_count=1)) for path in PATHS
        }
        self.expected: set[str] = set()
        self.sent = 0

    def _describe(self, path: str, **changes: object) -> None:
        self.harness.namespace.update(replace(self.entities[path].description, **changes))

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
        self.expected |= names

    @rule(path=paths, sub_queue=st.sampled_from(SubQueue), completed=st.booleans())
    def receive(self, path: str, sub_queue: SubQueue, completed: bool) -> None:
        queue = self.entities[path].sub_queue(sub_queue)
        for message in queue.receive(1):
            if completed:
                queue.complete(token_of(message))
                self.expected.remove(message.content.sections.decode())
            else:
                queue.abandon(token_of(message))

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        found = [
            message
            for each in self.entities.values()
            for queue in each.queues()
            for message in queue.peek(0, limit=999)
        ]
        assert sorted(message.content.sections.decode() for message in found) == sorted(self.expected)
        assert all(message.hops <= 4 for message in found)

    @invariant()
    def forwarding_entities_keep_no_ready_messages(self) -> None:
        for entity in self.entities.values():
            assert entity.description.forward_to is None or entity.main.ready_count() == 0
            dead = entity.sub_queue(SubQueue.DEAD_LETTER)
            assert entity.description.forward_dead_lettered_messages_to is None or dead.ready_count() == 0


ForwardingModel.TestCase.settings = settings(max_examples=how_many(60), stateful_step_count=40)
TestForwardingModel = ForwardingModel.TestCase
