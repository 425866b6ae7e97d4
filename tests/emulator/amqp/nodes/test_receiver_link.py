"""A rejection is the answer to one delivery; its link stays open (EMULATOR.md section 5)."""

from __future__ import annotations

from functools import partial

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError
from proton import Delivery

from servicebus_emulator import HostedNamespace
from servicebus_emulator.amqp.codec.sections import SectionCode
from servicebus_emulator.amqp.codec.value_codec import encode
from tests.emulator.support.encoded_messages import mapped, section
from tests.emulator.support.proton_client import Peer
from tests.emulator.support.sdk_client import SdkClient, bodies


async def test_a_link_stays_open_when_a_message_is_rejected(hosted: HostedNamespace, peer: Peer):
    good = section(SectionCode.DATA, encode(b"x"))
    poison = section(SectionCode.APPLICATION_PROPERTIES, mapped(encode("p"), encode("x" * 33_000))) + good
    sender = peer.sender(peer.begin(), "flights")
    await peer.until(lambda: sender.credit > 0)
    for tag, data in {"poison": poison, "good": good}.items():
        sender.delivery(tag)
        sender.send(data)
        sender.advance()
        await peer.until(partial(peer.answered.__contains__, tag))
    assert peer.answered == {"poison": Delivery.REJECTED, "good": Delivery.ACCEPTED}
    assert "LINK_REMOTE_CLOSE" not in peer.seen
    assert hosted.namespace.counts("flights").active == 1


@pytest.mark.asyncio(loop_scope="session")
async def test_a_batch_is_stored_completely_or_not_at_all(sdk: SdkClient, queue: str):
    poison = ServiceBusMessage("poison", application_properties={"p": "x" * 33_000})
    async with sdk.queue(queue) as (sender, receiver):
        with pytest.raises(ServiceBusError):
            await sender.send_messages([ServiceBusMessage("good"), poison])
        await sender.send_messages([ServiceBusMessage("a"), ServiceBusMessage("b")])
        assert bodies(await receiver.peek_messages(10)) == ["a", "b"]
