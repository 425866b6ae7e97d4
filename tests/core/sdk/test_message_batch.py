"""A batch encodes like the SDK's, stays within the link's limits with its envelope, and splits in order (SPEC 4)."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusMessageBatch
from azure.servicebus.amqp import AmqpAnnotatedMessage
from hypothesis import example, given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import InvalidMessageError, MessageTooLargeError
from servicebus_pair.core.protocol.amqp_message import AmqpMessage, Properties
from servicebus_pair.core.protocol.batching import partition_key
from servicebus_pair.core.sdk._private.message_encoding import encode_message
from servicebus_pair.core.sdk.message_batch import EncodedBatch, _max_envelope_bytes, encoded_size
from servicebus_pair.core.sdk.messages import from_sdk, to_amqp_message, to_sdk
from tests.core.support.encoding import encode
from tests.core.support.message_strategies import EXPIRING, LASTING, WHOLE, messages
from tests.examples import examples

# Times that the broker has set are longs to the SDK; other numbers are not.
_TIMES: dict[Any, Any] = {b"x-opt-enqueued-time": 1_357_000_000_000, b"x-opt-locked-until": 5, b"x-opt-mine": 5}
FORWARDED = AmqpAnnotatedMessage(
    data_body=b"x", annotations=_TIMES, application_properties={"bytes": b"text", "number": 5}
)


def new_message(number: int = 0, *, size: int = 100, session: str | None = "s" * 50, **more: Any) -> AmqpMessage:
    return to_amqp_message(ServiceBusMessage(bytes(size), message_id=f"m{number}", session_id=session, **more))


def size_in_bytes(batch: EncodedBatch) -> int:
    """The size of a batch as the SDK measures it."""
    theirs = ServiceBusMessageBatch(2**30)
    for message in batch.messages:
        theirs.add_message(to_sdk(message))
    return theirs.size_in_bytes


@pytest.mark.fast_sdk
@examples(150)
@example(message=WHOLE)
@example(message=LASTING)
@example(message=EXPIRING)
@example(message=FORWARDED)
@given(message=messages())
def test_a_message_is_encoded_as_the_sdk_encodes_it(message: AmqpAnnotatedMessage) -> None:
    ours, theirs = EncodedBatch(262_144), ServiceBusMessageBatch(262_144)
    # The SDK writes the time of encoding into a message with a time to live: use one time for all three.
    with patch("time.mktime", return_value=1_800_000_000.0):
        assert ours.try_add(from_sdk(message))
        assert ours.try_add(from_sdk(message))
        theirs.add_message(message)  # last, since it changes values that are bytes
    encoded: Any = ours.encoded_form
    [one, two] = encoded[5]
    assert [bytes(one)] == [bytes(two)] == [bytes(each) for each in theirs._message[5]]
    assert encoded[3] == theirs._message[3]
    # The SDK finds a partition key only where the annotation's name is bytes, as in its own messages.
    key = partition_key(message)
    assert encoded[2] == ({"x-opt-partition-key": key} if key else None)
    assert theirs._message[2] in (None, {b"x-opt-partition-key": key})
    assert encoded_size(from_sdk(message)) == len(one)


@examples(50)
@given(
    first=st.tuples(st.integers(0, 300), st.sampled_from([None, "s", "s" * 120]), st.sampled_from([None, "k" * 100])),
    sizes=st.lists(st.integers(0, 900), max_size=30),
    limit=st.integers(1500, 4000),
)
def test_a_batch_is_not_larger_than_the_limit_with_its_envelope_and_nearly_full(
    first: tuple[int, str | None, str | None], sizes: list[int], limit: int
) -> None:
    size, session, key = first
    batch = EncodedBatch(limit)
    if key is not None:
        session = None
    given_messages = [new_message(size=size, session=session, partition_key=key), *(new_message(size=n) for n in sizes)]
    packed = [message for message in given_messages if batch.try_add(message)]
    assert (batch.messages, len(batch), len(batch.refs)) == (packed, len(packed), len(packed))
    payload = sum(ref.size_bytes for ref in batch.refs)
    # The envelope repeats id, session id and partition key of the first message.
    envelope = len(f"m0{session or ''}{key or ''}")
    if len(packed) > 1:
        assert size_in_bytes(batch) <= limit
        assert payload + envelope <= limit
    for message in given_messages:
        if message not in packed:
            assert payload + encoded_size(message) + 2 * envelope + 200 + 10 * len(packed) > limit


@pytest.mark.usefixtures("sdk_path")
def test_a_full_batch_leaves_out_only_its_envelope() -> None:
    batch = EncodedBatch(10_000)
    while batch.try_add(to_amqp_message(ServiceBusMessage(b"x" * 1000, message_id="m"))):
        pass
    assert (len(batch), len({ref.size_bytes for ref in batch.refs})) == (9, 1)
    assert _max_envelope_bytes(new_message(session="s" * 50)) == 80 + len("m0") + 50


@pytest.mark.usefixtures("sdk_path")
def test_a_message_too_large_for_a_batch_is_sent_alone() -> None:
    large = to_amqp_message(ServiceBusMessage(b"x" * 5_000, message_id="large"))
    size = encoded_size(large)
    batch = EncodedBatch(1_000, max_message_bytes=size)
    assert batch.try_add(large)
    assert not batch.try_add(new_message())
    alone = batch.public_form
    assert not isinstance(alone, list)
    assert encode(alone) == encode(large)
    assert (batch.messages, [(ref.message_id, ref.size_bytes) for ref in batch.refs]) == ([large], [("large", size)])
    for limits in ((size - 1, 0), (1_000, size - 1), (size - 1, 5)):
        refused = EncodedBatch(limits[0], max_message_bytes=limits[1])
        with pytest.raises(MessageTooLargeError, match=rf"'large' takes {size} bytes: the link takes {size - 1}"):
            refused.try_add(large)
        assert len(refused) == 0
        assert refused.try_add(new_message())
    assert EncodedBatch(size).try_add(large)


@pytest.mark.usefixtures("sdk_path")
def test_a_message_that_remains_the_only_one_is_sent_alone() -> None:
    small = new_message()
    batch = EncodedBatch(1_000)
    assert batch.try_add(small)
    assert not batch.try_add(new_message(size=900))
    alone = batch.public_form
    assert not isinstance(alone, list)
    assert encode(alone) == encode(small)


@pytest.mark.fast_sdk
def test_only_a_single_message_is_sent_outside_a_batch_and_its_id_may_be_bytes() -> None:
    batch = EncodedBatch(10_000)
    binary = AmqpMessage([b"x"], properties=Properties(b"\xff1"))
    assert batch.try_add(binary)
    single: Any = batch.encoded_form
    assert (len(single.encoded), batch.refs[0].message_id) == (encoded_size(binary), "\\xff1")
    assert single.properties.message_id == b"\xff1"
    assert batch.try_add(AmqpMessage([b"x"]))
    several: Any = batch.encoded_form
    assert (several[3].message_id, len(several[5]), batch.refs[1].message_id) == (b"\xff1", 2, "None")


@pytest.mark.fast_sdk
@pytest.mark.usefixtures("public_sdk")
def test_both_paths_measure_a_message_alike() -> None:
    for size in (*range(150, 262), 1_000, 70_000):
        message = new_message(size=size)
        assert encoded_size(message) == len(encode_message(message)), size


@pytest.mark.usefixtures("sdk_path")
@pytest.mark.parametrize("position", [0, 1, 2])
def test_a_value_without_an_encoding_is_refused_and_the_batch_is_unchanged(position: int) -> None:
    bad = new_message(9, application_properties={"count": 2**40})
    batch = EncodedBatch(10_000)
    for number in range(position):
        assert batch.try_add(new_message(number))
    for refuse in (batch.try_add, encoded_size):
        with pytest.raises(InvalidMessageError, match="message 'm9' cannot be encoded, "):
            refuse(bad)
    assert len(batch) == len(batch.refs) == position


@pytest.mark.usefixtures("sdk_path")
@pytest.mark.parametrize(("count", "halves"), [(2, [1, 1]), (5, [3, 2]), (6, [3, 3])])
def test_a_batch_splits_into_halves_in_order(count: int, halves: list[int]) -> None:
    batch = EncodedBatch(10_000)
    assert all(batch.try_add(new_message(number)) for number in range(count))
    parts = batch.split()
    assert [len(part) for part in parts] == halves
    assert [ref.message_id for part in parts for ref in part.refs] == [f"m{number}" for number in range(count)]


@pytest.mark.usefixtures("sdk_path")
def test_a_repacked_batch_keeps_its_limits_and_grows_if_its_envelope_does() -> None:
    batch = EncodedBatch(3_000, max_message_bytes=5_000)
    many = [new_message(number, session="s" * 120 if number == 7 else None) for number in range(40)]
    packed = [message for message in many if batch.try_add(message)]
    assert [len(part) for part in batch.repack(packed)] == [len(packed)]
    again = batch.repack([packed[7], *packed[:7], *packed[8:]])
    assert len(again) == 2
    assert sum(len(part) for part in again) == len(packed)
    assert again[0]._empty().try_add(new_message(size=4_000))
