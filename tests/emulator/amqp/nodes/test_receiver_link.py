"""A rejection is the answer to one delivery; its link stays open (EMULATOR.md section 5)."""

from __future__ import annotations

from proton import Delivery

from servicebus_emulator import HostedNamespace
from servicebus_emulator.amqp.codec.sections import SectionCode
from servicebus_emulator.amqp.codec.value_codec import encode
from tests.emulator.support.encoded_messages import mapped, section
from tests.emulator.support.proton_client import Peer


async def test_a_link_stays_open_when_a_message_or_batch_is_rejected(hosted: HostedNamespace, peer: Peer):
    good = section(SectionCode.DATA, encode(b"x"))
    poison = section(SectionCode.APPLICATION_PROPERTIES, mapped(encode("p"), encode("x" * 33_000))) + good
    batch = b"".join(section(SectionCode.DATA, encode(each)) for each in (good, poison))
    sender = peer.sender(peer.begin(), "flights")
    await peer.until(lambda: sender.credit > 0)
    for tag, data in {"poison": poison, "batch": batch, "good": good}.items():
        sender.delivery(tag)
        sender.send(data)
        sender.advance()
        await peer.until(lambda tag=tag: tag in peer.answered)
    assert peer.answered == {"poison": Delivery.REJECTED, "batch": Delivery.REJECTED, "good": Delivery.ACCEPTED}
    assert "LINK_REMOTE_CLOSE" not in peer.seen
    assert hosted.namespace.counts("flights").active == 1
