"""Packing of messages into batches by size and partition key (SPEC section 4)."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import MessageTooLargeError
from servicebus_pair.core.protocol.batching import (
    MAX_MESSAGES_PER_BATCH,
    BatchPacker,
    SizedBatch,
    is_mixed,
    message_bytes,
    partition_key,
    session_key,
    split_by_session,
)
from servicebus_pair.core.protocol.typed_values import amqp_typed
from servicebus_pair.core.sdk.messages import to_amqp_message
from tests.core.support.encoding import decode, encode
from tests.examples import examples

LIMIT = 10
MAX_OPEN = 64


@dataclass(frozen=True)
class Item:
    """A message stand-in."""

    number: int
    key: Hashable
    size: int


@dataclass
class Box:
    """A batch that adds up sizes."""

    limit: int = LIMIT
    items: list[Item] = field(default_factory=list)

    def try_add(self, message: Item) -> bool:
        if message.size > self.limit and not self.items:
            raise MessageTooLargeError(f"{message.size} > {self.limit}")
        if sum(item.size for item in self.items) + message.size > self.limit:
            return False
        self.items.append(message)
        return True

    def __len__(self) -> int:
        return len(self.items)


def packer_of_boxes(limit: int = LIMIT) -> BatchPacker[Box]:
    return BatchPacker(lambda: Box(limit), key=lambda item: item.key)


def fill(packer: BatchPacker[Any], messages: list[Any]) -> list[Any]:
    full = [packer.add(message) for message in messages]
    return [*(batch for batch in full if batch is not None), *packer.flush()]


item_lists = st.lists(
    st.tuples(st.sampled_from([None, "a", "b"]) | st.integers(0, 100), st.integers(0, LIMIT)), max_size=200
).map(lambda rows: [Item(number, key, size) for number, (key, size) in enumerate(rows)])


@examples(200)
@given(messages=item_lists)
def test_packing_keeps_all_messages_and_order_per_partition_key(messages: list[Item]) -> None:
    boxes = fill(packer_of_boxes(), messages)
    packed = [item for box in boxes for item in box.items]
    assert sorted(item.number for item in packed) == [item.number for item in messages]
    for key in {item.key for item in messages}:
        mine = [item.number for item in packed if item.key == key]
        assert mine == sorted(mine)


@examples(200)
@given(sizes=st.lists(st.tuples(st.sampled_from([None, "a"]), st.integers(0, LIMIT + 3)), max_size=60))
def test_too_large_message_raises_and_others_are_packed(sizes: list[tuple[Any, int]]) -> None:
    packer, closed = packer_of_boxes(), []
    messages = [Item(number, key, size) for number, (key, size) in enumerate(sizes)]
    for message in messages:
        if message.size > LIMIT:
            with pytest.raises(MessageTooLargeError):
                packer.add(message)
        else:
            closed.append(packer.add(message))
    packed = [item.number for box in (*closed, *packer.flush()) if box is not None for item in box.items]
    assert sorted(packed) == [message.number for message in messages if message.size <= LIMIT]


def test_flush_returns_oldest_batch_first() -> None:
    packer = packer_of_boxes()
    empty = [packer.is_empty]
    for number, key in enumerate(["b", None, "a"]):
        packer.add(Item(number, key, 1))
    empty.append(packer.is_empty)
    assert empty == [True, False]
    assert [box.items[0].number for box in packer.flush()] == [0, 1, 2]
    assert packer.open_batches() == ()


@examples(200)
@given(messages=item_lists)
def test_batch_is_within_limits_and_has_one_partition_key(messages: list[Item]) -> None:
    for box in fill(packer_of_boxes(), messages):
        assert 0 < len(box) <= MAX_MESSAGES_PER_BATCH
        assert sum(item.size for item in box.items) <= LIMIT
        assert len({item.key for item in box.items}) == 1


@examples(50)
@given(keys=st.lists(st.integers(0, 300), max_size=600))
def test_number_of_open_batches_is_limited(keys: list[int]) -> None:
    packer = packer_of_boxes()
    for number, key in enumerate(keys):
        packer.add(Item(number, key, 1))
        assert len(packer.open_batches()) <= MAX_OPEN


def test_oldest_batch_is_returned_when_too_many_are_open() -> None:
    packer = packer_of_boxes()
    for key in range(MAX_OPEN):
        assert packer.add(Item(key, key, 1)) is None
    closed = packer.add(Item(MAX_OPEN, MAX_OPEN, 1))
    assert closed is not None
    assert closed.items == [Item(0, 0, 1)]


def test_batch_that_replaced_a_full_one_counts_as_new() -> None:
    packer = packer_of_boxes()
    for key in (0, 1):
        packer.add(Item(key, key, LIMIT))
    assert packer.add(Item(2, 0, LIMIT)) is not None
    for key in range(2, MAX_OPEN):
        assert packer.add(Item(key + 1, key, 1)) is None
    closed = packer.add(Item(MAX_OPEN + 1, MAX_OPEN, 1))
    assert closed is not None
    assert closed.items == [Item(1, 1, LIMIT)]


def test_batch_holds_at_most_4500_messages() -> None:
    boxes = fill(packer_of_boxes(), [Item(number, None, 0) for number in range(4501)])
    assert [len(box) for box in boxes] == [4500, 1]


def test_message_of_exactly_the_limit_fits() -> None:
    assert [len(box) for box in fill(packer_of_boxes(), [Item(0, None, LIMIT), Item(1, None, LIMIT)])] == [1, 1]


@pytest.mark.parametrize("name", ["x-opt-partition-key", b"x-opt-partition-key"])
@pytest.mark.parametrize("value", ["k", b"k", amqp_typed("STRING", "k"), amqp_typed("SYMBOL", b"k")])
def test_partition_key_is_read_from_any_representation(name: Any, value: Any) -> None:
    assert partition_key(AmqpAnnotatedMessage(data_body=b"", annotations={name: value})) == "k"


def test_partition_key_is_the_same_after_receipt() -> None:
    message = ServiceBusMessage("x", partition_key="k")
    assert partition_key(decode(encode(message))) == partition_key(message.raw_amqp_message) == "k"
    assert partition_key(AmqpAnnotatedMessage(data_body=b"")) is None


@examples(100)
@given(sessions=st.lists(st.sampled_from([None, "a", "b", "c"]), max_size=30))
def test_a_refused_batch_is_split_by_session_in_order(sessions: list[str | None]) -> None:
    messages = [to_amqp_message(ServiceBusMessage("x", session_id=each)) for each in sessions]
    parts = split_by_session(messages)
    for part in parts:
        assert not is_mixed(part)
        session = session_key(part[0])
        assert [id(each) for each in part] == [id(each) for each in messages if session_key(each) == session]
    assert len(parts) == len({session_key(message) for message in messages})


class Sizes(SizedBatch[int]):
    """A batch of numbers, each as large as it says; its envelope takes as much as a tenth of the first one."""

    def try_add(self, message: int) -> bool:
        return self._append(message, message)

    def _envelope_bytes(self) -> int:
        return self.messages[0] // 10

    def _name(self, message: int) -> str:
        return f"m{message}"


def sizes(limit: int, *numbers: int, largest: int = 0) -> list[list[int]]:
    [batch] = Sizes(limit, max_message_bytes=largest).repack([])
    return [each.messages for each in batch.repack(numbers)]


@pytest.mark.parametrize(
    ("limit", "numbers", "parts"),
    [
        # A message of up to 255 bytes takes 5 more, a larger one 8; the envelope counts from the second one on.
        (2 * 100 + 2 * 5 + 10, (100, 100), [[100, 100]]),
        (2 * 100 + 2 * 5 + 9, (100, 100), [[100], [100]]),
        (255 + 1 + 2 * 5 + 25, (255, 1), [[255, 1]]),
        (256 + 1 + 8 + 5 + 24, (256, 1), [[256], [1]]),
        (256 + 1 + 8 + 5 + 25, (256, 1), [[256, 1]]),
        (3 * 100 + 3 * 5 + 10, (100, 100, 100), [[100, 100, 100]]),
        (3 * 100 + 3 * 5 + 9, (100, 100, 100), [[100, 100], [100]]),
        (300 + 1 + 8 + 5 + 29, (300, 1), [[300], [1]]),
        (300 + 1 + 8 + 5 + 30, (300, 1), [[300, 1]]),
        (100, (100, 1), [[100], [1]]),
        (220, (100, 100, 100, 100, 5), [[100, 100], [100, 100], [5]]),
        (1000, (), [[]]),
    ],
)
def test_a_batch_is_as_large_as_its_sections_and_envelope(
    limit: int, numbers: tuple[int, ...], parts: list[list[int]]
) -> None:
    assert sizes(limit, *numbers) == parts


def test_a_message_that_is_sent_alone_may_be_larger_than_a_batch() -> None:
    assert sizes(100, 300, 5, largest=300) == [[300], [5]]
    for limit, largest, size in ((100, 300, 301), (100, 0, 101), (100, 50, 101)):
        with pytest.raises(MessageTooLargeError, match=f"'m{size}' takes {size} bytes: the link takes {size - 1}"):
            sizes(limit, size, largest=largest)


def test_each_kind_of_batch_encodes_its_own_messages() -> None:
    assert SizedBatch.__abstractmethods__ == {"try_add", "_envelope_bytes", "_name"}


@pytest.mark.parametrize(("count", "halves"), [(2, [1, 1]), (3, [2, 1]), (4, [2, 2]), (5, [3, 2])])
def test_a_batch_is_split_into_halves_in_order(count: int, halves: list[int]) -> None:
    batch = Sizes(1000, max_message_bytes=2000)
    assert all(batch.try_add(number) for number in range(count))
    parts = batch.split()
    assert [len(part) for part in parts] == halves
    assert [number for part in parts for number in part.messages] == list(range(count))
    assert [(part._max_bytes, part._max_message_bytes) for part in parts] == [(1000, 2000)] * 2


@pytest.mark.parametrize("size", [0, 1, 254, 255, 256, 257, 70_000])
def test_a_message_is_as_large_as_its_section_without_what_surrounds_it(size: int) -> None:
    assert message_bytes(size + (5 if size < 256 else 8)) == size
