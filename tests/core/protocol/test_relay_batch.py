"""Batches of encoded messages are those that the SDK would send."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.message import BatchMessage

from servicebus_pair.core.model.errors import MessageTooLargeError
from servicebus_pair.core.protocol.relay_batch import RelayBatch
from servicebus_pair.core.protocol.relayed_message import RelayedMessage
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.sdk.relay.encoding import encode_message

pytestmark = pytest.mark.fast_sdk


def message(number: int, size: int, **more: Any) -> ServiceBusMessage:
    return ServiceBusMessage(bytes(size), message_id=f"m{number}", **more)


@pytest.mark.parametrize("size", [1, 200, 240, 245, 250, 300, 70_000])
def test_a_batch_has_the_bytes_of_the_sdk(size: int) -> None:
    both = [message(number, size, session_id="s", partition_key="s") for number in range(3)]
    theirs, ours = EncodedBatch(2**20), RelayBatch(2**20)
    for each in both:
        assert theirs.try_add(to_amqp_message(each))
        assert ours.try_add(encode_message(to_amqp_message(each)))
    expected = bytearray()
    form = theirs.encoded_form
    assert isinstance(form, list)
    encode_payload(expected, BatchMessage(*form))
    assert ours.payload() == (bytes(expected), BatchMessage._code)
    # The digest of a body is recorded when it is sent, not when it is moved.
    assert list(ours.refs) == [replace(each, digest=None) for each in theirs.refs]


@pytest.mark.parametrize("size", [100, 300])
def test_a_batch_is_never_larger_than_the_link_allows(size: int) -> None:
    batch = RelayBatch(4_000)
    number = 0
    while batch.try_add(RelayedMessage(encode_message(to_amqp_message(message(number, size))).encoded, "m")):
        number += 1
    assert 4_000 - size - 100 < len(batch.payload()[0]) <= 4_000


def test_a_message_alone_is_sent_as_it_is_and_may_be_larger_than_a_batch() -> None:
    batch = RelayBatch(1_000, max_message_bytes=3_000)
    encoded = encode_message(to_amqp_message(message(1, 2_000)))
    assert batch.try_add(encoded)
    assert batch.payload() == (encoded.encoded, 0)
    with pytest.raises(MessageTooLargeError, match="'m2' takes 3"):
        RelayBatch(1_000, max_message_bytes=3_000).try_add(encode_message(to_amqp_message(message(2, 3_000))))


def test_a_batch_is_split_in_order() -> None:
    batch = RelayBatch(10_000)
    for number in range(5):
        batch.try_add(RelayedMessage(encode_message(to_amqp_message(message(number, 10))).encoded, f"m{number}"))
    assert [[each.message_id for each in part.messages] for part in batch.split()] == [["m0", "m1", "m2"], ["m3", "m4"]]
