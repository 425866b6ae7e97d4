"""A batch leaves room for its envelope and splits into halves, in order."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.sdk._private.batch_encoding import EncodedBatch


def new_message(number: int) -> AmqpAnnotatedMessage:
    return ServiceBusMessage(bytes(100), message_id=f"m{number}", session_id="s" * 50).raw_amqp_message


@pytest.mark.parametrize(("count", "halves"), [(2, [1, 1]), (5, [3, 2]), (6, [3, 3])])
def test_a_batch_splits_into_halves_in_order(count: int, halves: list[int]) -> None:
    batch = EncodedBatch(10_000)
    assert all(batch.try_add(new_message(number)) for number in range(count))
    parts = batch.split()
    assert [len(part) for part in parts] == halves
    assert [ref.message_id for part in parts for ref in part.refs] == [f"m{number}" for number in range(count)]


def test_a_full_batch_is_not_larger_than_the_limit_with_its_envelope() -> None:
    batch, count = EncodedBatch(3000), 0
    while batch.try_add(new_message(count)):
        count += 1
    payload = sum(ref.size_bytes for ref in batch.refs)
    # The envelope repeats the session id as group id and as partition key.
    assert 3000 - 100 - 400 < payload <= 3000 - 2 * 50
