"""The ready queue and the sequence index compared with plain collections."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator.engine.model.message import Message
from servicebus_emulator.engine.queue.ready_queue import ReadyQueue
from servicebus_emulator.engine.queue.sequence_index import SequenceIndex
from tests.emulator.support.engine import content

steps = st.lists(st.tuples(st.sampled_from(["extend", "return", "pop", "discard"]), st.integers(1, 4)), max_size=60)


@given(steps)
def test_pop_returns_the_lowest_ready_number(steps: list[tuple[str, int]]):
    queue, ready, popped, last = ReadyQueue(), set[int](), list[int](), 0
    for step, amount in steps:
        if step == "extend":
            numbers = list(range(last + 1, last + 1 + amount))
            queue.extend(numbers)
            ready.update(numbers)
            last += amount
        elif step == "return" and len(popped) > 0:
            number = popped.pop(amount % len(popped))
            queue.push(number)
            ready.add(number)
        elif step == "pop":
            number_or_none = queue.pop()
            assert number_or_none == min(ready, default=None)
            if number_or_none is not None:
                ready.remove(number_or_none)
                popped.append(number_or_none)
        elif step == "discard" and len(ready) > 0:
            number = sorted(ready)[amount % len(ready)]
            queue.discard(number)
            ready.remove(number)
        assert len(queue) == len(ready)
    assert [queue.pop() for _ in sorted(ready)] == sorted(ready)
    assert queue.pop() is None


def test_discarded_numbers_are_bounded():
    queue = ReadyQueue()
    queue.extend(range(10_000))
    for number in range(9_999):
        queue.discard(number)
    assert len(queue) == 1
    assert len(queue._new) < 3_000
    assert queue.pop() == 9_999


def message(number: int) -> Message:
    return Message(row_id=number, sequence_number=number, content=content("x" * number), enqueued_at=0)


@given(st.lists(st.integers(1, 30), unique=True), st.lists(st.integers(1, 30), unique=True), st.integers(0, 31))
def test_iteration_starts_at_any_number(added: list[int], removed: list[int], start: int):
    index, expected = SequenceIndex(), dict[int, Message]()
    for number in added:
        expected[number] = message(number)
        index.add(expected[number])
    for number in removed:
        if number in expected:
            assert index.pop(number) is expected.pop(number)
    assert list(index.starting_at(start)) == [expected[number] for number in sorted(expected) if number >= start]
    assert (len(index), index.size_in_bytes) == (len(expected), sum(expected))


def test_removed_numbers_are_bounded():
    index = SequenceIndex()
    messages = [message(number) for number in range(10_000)]
    index.extend(messages, numbers=range(10_000), size_in_bytes=sum(range(10_000)))
    for each in messages[:-1]:
        index.remove(each)
    assert len(index._order) < 3_000
    assert list(index.starting_at(0)) == messages[-1:]
