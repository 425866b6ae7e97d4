"""Frame sizes, session windows, credit and the order of closes (AMQP 1.0 part 2)."""

from __future__ import annotations

import asyncio
import re

import pytest
from proton import symbol

from servicebus_emulator import HostedNamespace
from servicebus_emulator.amqp.session.connection import AmqpConnection
from servicebus_emulator.amqp.transport import stream_faults as wire
from tests.emulator.support import hostile_bytes as hostility
from tests.emulator.support.proton_client import (
    Peer,
    attach_links,
    connected,
    encoded_message,
    is_closed,
    is_open,
    send_messages,
)

pytestmark = pytest.mark.simulated

KILOBYTE = 1024


async def test_frames_respect_the_clients_max_frame_size(peer: Peer):
    peer.transport.max_frame_size = 512
    peer.recorded = bytearray()
    sender, receiver = await attach_links(peer)
    await send_messages(peer, sender, size=20 * KILOBYTE)
    receiver.flow(1)
    await peer.until(lambda: len(peer.received) == 1)
    assert len(peer.received[0][1]) > 20 * KILOBYTE
    sizes = [len(each) for each in hostility.frames_of(bytes(peer.recorded))]
    assert max(sizes) == 512
    assert len(sizes) > 40


@pytest.mark.parametrize(("version", "padded"), [("7.12.3", True), ("7.15.0", False)])
async def test_a_client_that_looks_fields_up_by_position_gets_all_of_them(peer: Peer, version: str, padded: bool):
    peer.connection.properties = {symbol("product"): "azsdk-python-servicebus", symbol("version"): version}
    peer.recorded = bytearray()
    sender, receiver = await attach_links(peer)
    await send_messages(peer, sender)
    receiver.flow(1)
    await peer.until(lambda: len(peer.received) == 1)
    assert peer.received[0][1].endswith(encoded_message(1))
    receiver.close()
    await peer.until(lambda: is_closed(receiver))
    counts = {each[10]: each[13] for each in hostility.frames_of(bytes(peer.recorded)) if len(each) > 13}
    full = {0x10: 10, 0x11: 8, 0x12: 14, 0x14: 11, 0x15: 6, 0x16: 3}
    assert all((counts[code] == number) is padded for code, number in full.items() if code != 0x12)
    assert counts[0x12] <= full[0x12]


async def test_a_refused_link_is_logged_with_the_reason(peer: Peer, caplog: pytest.LogCaptureFixture):
    caplog.set_level("INFO")
    link = peer.sender(peer.begin(), "missing")
    await peer.until(lambda: is_closed(link))
    assert re.search(r"link 'sender-missing-0' refused: .*'missing' could not be found", caplog.text)


async def test_frames_respect_the_clients_session_window(peer: Peer):
    peer.transport.max_frame_size = 1024
    session = peer.begin()
    session.incoming_capacity = 8 * 1024
    sender, receiver = await attach_links(peer, session=session)
    await send_messages(peer, sender, size=60 * KILOBYTE)
    peer.reads = False
    receiver.flow(1)
    await peer.quiet(seconds=0.3)
    assert 4 * 1024 < session.incoming_bytes <= 8 * 1024
    held = bytearray()
    async with asyncio.timeout(5):
        while len(held) < 60 * KILOBYTE:
            held += receiver.recv(1 << 20) or b""
            await peer.quiet(seconds=0.05)
    assert bytes(held).endswith(encoded_message(60 * KILOBYTE)[-KILOBYTE:])


async def test_a_channel_above_channel_max_closes_the_connection(peer: Peer):
    for data in (*hostility.begun(), hostility.begin_frame(channel=4999)):
        peer.writer.write(data)
        await asyncio.sleep(0.05)
    peer.writer.write(hostility.begin_frame(channel=5000))
    async with asyncio.timeout(3):
        answered = await peer.reader.read()
    assert b"amqp:" in answered[answered.rindex(b"\x00\x53\x18") :]


async def test_closes_are_answered_in_order(peer: Peer):
    sender, receiver = await attach_links(peer)
    session = sender.session
    receiver.close()
    await peer.until(lambda: is_closed(receiver))
    assert is_open(sender)
    await send_messages(peer, sender)
    session.close()
    await peer.until(lambda: is_closed(session))
    another = peer.connection.session()
    another.open()
    third = peer.sender(another, "flights")
    await peer.until(lambda: third.credit > 0)
    peer.connection.close()
    await peer.until(lambda: is_closed(peer.connection))
    await peer.until(lambda: peer.gone)
    assert peer.connection.remote_condition is None


async def test_an_aborted_connection_leaves_no_links(hosted: HostedNamespace):
    async with connected(hosted) as peer:
        await attach_links(peer)
        assert len(hosted._broker._connections) == 1
    async with asyncio.timeout(3):
        while len(hosted._broker._connections) > 0:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0.01)
    assert hosted._broker._links == set()


async def test_reading_pauses_for_a_client_that_does_not_read_its_replies(
    hosted: HostedNamespace, peer: Peer, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(wire, "_MAX_UNREAD_BYTES", 100 * KILOBYTE)
    sender = peer.sender(peer.begin(), "$cbs")
    answers = peer.receiver(sender.session, "$cbs")
    answers.flow(100_000)
    await peer.until(lambda: sender.credit > 0 and is_open(answers))
    [connection] = [each for each in hosted._broker._connections if isinstance(each, AmqpConnection)]
    assert connection._stream is not None
    request = b"\x00Ss" + hostility.listed(hostility.text("i" * 200)) + b"\x00St\xc1\x01\x00\x00Sw\x40"
    peer.writer.transport.set_write_buffer_limits(1 << 30)
    sent = 0
    # The sockets fill up first; then the emulator's write buffer reaches its limit.
    while connection._stream._transport.get_write_buffer_size() <= 100 * KILOBYTE and sent < 60_000:
        peer.push()
        for _ in range(min(50, sender.credit)):
            sender.delivery(str(sent))
            sender.send(request)
            sender.advance()
            sent += 1
        peer.push()
        await asyncio.sleep(0)
        if sender.credit == 0:
            break
    await asyncio.sleep(0.2)
    assert connection._stream._transport.get_write_buffer_size() < 400 * KILOBYTE
    await peer.until(lambda: len(peer.answered) == sent)


async def test_credit_is_renewed_before_it_is_used_up(peer: Peer):
    sender, _ = await attach_links(peer)
    for _ in range(5):
        await send_messages(peer, sender, count=400)
    await peer.quiet(seconds=0.05)
    assert sender.credit > 400
