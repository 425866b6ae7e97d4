"""Sends while the primary works (SPEC section 4)."""

from __future__ import annotations

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.model.errors import InvalidMessageError, SendError
from tests.core.support.local_pair import LocalPair, numbered
from tests.core.support.queues import peek_all

pytestmark = pytest.mark.simulated


async def test_section_4_while_healthy_messages_go_to_the_primary_in_order(local_pair: LocalPair) -> None:
    async with local_pair.pair.sender("flights") as sender:
        result = await sender.send(numbered(2500))
    held = await peek_all(local_pair.primary.connection_string, "flights")
    assert (result.primary, result.diverted) == (2500, 0)
    assert [message.message_id for message in held] == [f"m{n}" for n in range(2500)]


async def test_section_4_a_message_that_cannot_be_encoded_raises_and_is_unsent(
    local_pair: LocalPair,
) -> None:
    bad = ServiceBusMessage("bad", message_id="bad", application_properties={"count": 2**40})
    async with local_pair.pair.sender("flights") as sender:
        with pytest.raises(SendError, match="'bad' cannot be encoded") as caught:
            await sender.send([*numbered(2), bad, *numbered(2, start=2)])
    unsent = [message.message_id for message in caught.value.unsent]
    assert isinstance(caught.value.cause, InvalidMessageError)
    assert sorted(unsent) == ["bad", "m0", "m1", "m2", "m3"]
