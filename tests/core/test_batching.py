"""SPEC section 4: batches are packed by bytes; a divert never splits one message or drops the rest of a batch."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import given, settings
from hypothesis import strategies as st

from servicebus_pair.core.amqp_types import typed
from servicebus_pair.core.batching import MAX_MESSAGES_PER_BATCH, Batch, Packer, partition_key
from servicebus_pair.core.errors import MessageTooLargeError
from servicebus_pair.core.wire import WireBatch
from tests.core.wire import received, sent

LIMIT = 10
MOST_OPEN = 64


@dataclass(frozen=True)
class Parcel:
    """A message of the tests: its number, its partition key and its size."""

    number: int
    key: Hashable
    size: int


@dataclass
class Box:
    """A batch that counts sizes."""

    limit: int = LIMIT
    parcels: list[Parcel] = field(default_factory=list)

    def try_add(self, message: Parcel) -> bool:
        if message.size > self.limit and not self.parcels:
            raise MessageTooLargeError(f"{message.size} > {self.limit}")
        if sum(parcel.size for parcel in self.parcels) + message.size > self.limit:
            return False
        self.parcels.append(message)
        return True

    def __len__(self) -> int:
        return len(self.parcels)


def packer_of_boxes(limit: int = LIMIT) -> Packer[Box]:
    return Packer(lambda: Box(limit), key=lambda parcel: parcel.key)


def fill(packer: Packer[Any], messages: list[Any]) -> list[Any]:
    full = [packer.add(message) for message in messages]
    return [*(batch for batch in full if batch is not None), *packer.rest()]


parcels = st.lists(
    st.tuples(st.sampled_from([None, "a", "b"]) | st.integers(0, 100), st.integers(0, LIMIT)), max_size=200
).map(lambda rows: [Parcel(number, key, size) for number, (key, size) in enumerate(rows)])


@settings(max_examples=200)
@given(messages=parcels)
def test_section_4_packing_loses_nothing_and_keeps_order_within_a_partition_key(messages: list[Parcel]) -> None:
    boxes = fill(packer_of_boxes(), messages)
    packed = [parcel for box in boxes for parcel in box.parcels]
    assert sorted(parcel.number for parcel in packed) == [parcel.number for parcel in messages]
    for key in {parcel.key for parcel in messages}:
        mine = [parcel.number for parcel in packed if parcel.key == key]
        assert mine == sorted(mine)


@settings(max_examples=200)
@given(sizes=st.lists(st.tuples(st.sampled_from([None, "a"]), st.integers(0, LIMIT + 3)), max_size=60))
def test_a_message_that_fits_no_batch_is_raised_and_takes_no_other_with_it(sizes: list[tuple[Any, int]]) -> None:
    packer, handed = packer_of_boxes(), []
    messages = [Parcel(number, key, size) for number, (key, size) in enumerate(sizes)]
    for message in messages:
        if message.size > LIMIT:
            with pytest.raises(MessageTooLargeError):
                packer.add(message)
        else:
            handed.append(packer.add(message))
    packed = [parcel.number for box in (*handed, *packer.rest()) if box is not None for parcel in box.parcels]
    assert sorted(packed) == [message.number for message in messages if message.size <= LIMIT]


def test_what_is_open_at_the_end_is_handed_out_oldest_first() -> None:
    packer = packer_of_boxes()
    for number, key in enumerate(["b", None, "a"]):
        packer.add(Parcel(number, key, 1))
    assert [box.parcels[0].number for box in packer.rest()] == [0, 1, 2]
    assert packer.open_batches() == ()


@settings(max_examples=200)
@given(messages=parcels)
def test_section_4_no_batch_is_empty_over_its_limit_or_of_two_partition_keys(messages: list[Parcel]) -> None:
    for box in fill(packer_of_boxes(), messages):
        assert 0 < len(box) <= MAX_MESSAGES_PER_BATCH
        assert sum(parcel.size for parcel in box.parcels) <= LIMIT
        assert len({parcel.key for parcel in box.parcels}) == 1


@settings(max_examples=50)
@given(keys=st.lists(st.integers(0, 300), max_size=600))
def test_section_4_memory_is_bounded_however_many_partition_keys_there_are(keys: list[int]) -> None:
    packer = packer_of_boxes()
    for number, key in enumerate(keys):
        packer.add(Parcel(number, key, 1))
        assert len(packer.open_batches()) <= MOST_OPEN


def test_section_4_the_oldest_batch_is_handed_out_when_too_many_are_open() -> None:
    packer = packer_of_boxes()
    for key in range(MOST_OPEN):
        assert packer.add(Parcel(key, key, 1)) is None
    handed = packer.add(Parcel(MOST_OPEN, MOST_OPEN, 1))
    assert handed is not None
    assert handed.parcels == [Parcel(0, 0, 1)]


def test_section_4_a_batch_that_replaced_a_full_one_is_young() -> None:
    packer = packer_of_boxes()
    for key in (0, 1):
        packer.add(Parcel(key, key, LIMIT))
    assert packer.add(Parcel(2, 0, LIMIT)) is not None
    for key in range(2, MOST_OPEN):
        assert packer.add(Parcel(key + 1, key, 1)) is None
    handed = packer.add(Parcel(MOST_OPEN + 1, MOST_OPEN, 1))
    assert handed is not None
    assert handed.parcels == [Parcel(1, 1, LIMIT)]


def test_the_service_refuses_more_than_4500_messages_so_a_batch_ends_there() -> None:
    boxes = fill(packer_of_boxes(), [Parcel(number, None, 0) for number in range(4501)])
    assert [len(box) for box in boxes] == [4500, 1]


def test_section_4_a_message_that_fits_no_batch_is_refused_and_what_was_packed_stays() -> None:
    packer = packer_of_boxes()
    packer.add(Parcel(0, None, 5))
    with pytest.raises(MessageTooLargeError):
        packer.add(Parcel(1, None, LIMIT + 1))
    assert packer.add(Parcel(2, None, 5)) is None
    assert [parcel.number for box in packer.rest() for parcel in box.parcels] == [0, 2]
    assert packer.open_batches() == ()


def test_section_4_a_message_that_exactly_fills_a_batch_fits() -> None:
    assert [len(box) for box in fill(packer_of_boxes(), [Parcel(0, None, LIMIT), Parcel(1, None, LIMIT)])] == [1, 1]


@settings(max_examples=30)
@given(
    bodies=st.lists(st.tuples(st.sampled_from([None, "a", "b"]), st.integers(0, 900)), max_size=40),
    limit=st.integers(1200, 4000),
)
def test_section_4_batches_in_the_sdks_encoding_stay_within_the_limit_of_the_link(
    bodies: list[tuple[str | None, int]], limit: int
) -> None:
    messages = [
        ServiceBusMessage(b"x" * size, message_id=str(number), partition_key=key).raw_amqp_message
        for number, (key, size) in enumerate(bodies)
    ]
    batches: list[WireBatch] = fill(Packer(lambda: WireBatch(limit), key=partition_key), messages)
    for batch in batches:
        assert len(batch) == len(batch.refs)
        if isinstance(batch.wire, ServiceBusMessageBatch):
            assert batch.wire.size_in_bytes <= limit
            assert len(batch.wire) == len(batch)
        assert len({partition_key(message) for message in batch.messages}) == 1
    packed = [ref.message_id for batch in batches for ref in batch.refs]
    assert sorted(packed, key=int) == [str(number) for number in range(len(messages))]
    assert all(ref.size_bytes > 0 for batch in batches for ref in batch.refs)


def test_section_4_a_message_too_large_for_the_link_is_named_with_the_limit() -> None:
    batch = WireBatch(1000)
    with pytest.raises(MessageTooLargeError, match=r"'big' takes 1031 bytes: the link takes 1000"):
        batch.try_add(ServiceBusMessage(b"x" * 1000, message_id="big").raw_amqp_message)
    assert len(batch) == 0
    assert batch.try_add(ServiceBusMessage(b"x", message_id="small").raw_amqp_message)


def test_a_wire_batch_is_a_batch() -> None:
    batch: Batch = WireBatch(1000)
    assert len(batch) == 0


@pytest.mark.parametrize("name", ["x-opt-partition-key", b"x-opt-partition-key"])
@pytest.mark.parametrize("value", ["k", b"k", typed("STRING", "k"), typed("SYMBOL", b"k")])
def test_section_4_the_partition_key_is_the_same_however_the_sdk_gives_it(name: Any, value: Any) -> None:
    assert partition_key(AmqpAnnotatedMessage(data_body=b"", annotations={name: value})) == "k"


def test_section_4_the_partition_key_is_the_same_after_it_was_received() -> None:
    message = ServiceBusMessage("x", partition_key="k")
    assert partition_key(received(sent(message))) == partition_key(message.raw_amqp_message) == "k"
    assert partition_key(AmqpAnnotatedMessage(data_body=b"")) is None
