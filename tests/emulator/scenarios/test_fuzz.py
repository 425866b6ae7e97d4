"""Random bytes neither crash the emulator, nor grow its memory, nor starve other clients.

The seed is fixed; ``python -m tests.emulator.support.fuzz --seconds N --seed S`` runs longer with other seeds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from proton import Delivery

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support import hostile_bytes as hostility
from tests.emulator.support.fuzz import MEGABYTE, run
from tests.emulator.support.hostile_conversations import flow
from tests.emulator.support.proton_client import attach_links, connected, is_closed, send_messages

SEED = 20_261_121


@pytest.mark.slow
async def test_random_bytes_cause_no_crash_growth_or_starvation():
    figures = await run(seed=SEED, rounds=25)
    assert min(figures.sent.values()) == 25
    assert figures.round_trips > 10
    assert figures.slowest < 10
    assert figures.memory_max - figures.memory_before < 400 * MEGABYTE
    assert figures.raised == {}


# Regressions that earlier runs found


@pytest.fixture
async def hosted() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"], open=True, message_kilobytes=102_400) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        yield emulator["contoso"]


async def test_an_address_that_is_not_utf_8_closes_the_connection(
    hosted: HostedNamespace, caplog: pytest.LogCaptureFixture
):
    async with connected(hosted) as peer:
        for each in hostility.attached("flights"):
            peer.writer.write(each.replace(b"flights", b"fli\xb0hts"))
        async with asyncio.timeout(3):
            answered = await peer.reader.read()
    assert b"amqp:decode-error" in answered
    assert [record for record in caplog.records if record.exc_info] == []


async def test_a_request_with_a_reply_to_that_is_not_utf_8_is_rejected(hosted: HostedNamespace):
    async with connected(hosted) as peer:
        sender = peer.sender(peer.begin(), "$cbs")
        await peer.until(lambda: sender.credit > 0)
        sender.delivery("broken")
        properties = hostility.listed(b"\x40", b"\x40", b"\x40", b"\x40", b"\xa1\x02\xff\xfe")
        sender.send(b"\x00Ss" + properties + b"\x00Sw\x40")
        sender.advance()
        await peer.until(lambda: "broken" in peer.answered)
        assert peer.answered["broken"] == Delivery.REJECTED
        assert not is_closed(sender)


@pytest.mark.parametrize("outcome", [b"\x00S\x24\x45", b"\x00S\x26\x45", b"\x00S\x27\x45", b"\x00S\x25\x45"])
async def test_a_delivery_settled_repeatedly_is_settled_once(hosted: HostedNamespace, outcome: bytes):
    """Proton frees a delivery that both sides have settled; the second answer found it gone, and ended the process."""
    async with connected(hosted) as peer:
        await send_messages(peer, peer.sender(peer.begin(), "flights"))
    async with connected(hosted) as peer:
        for each in (*hostility.attached("flights", receiver=True), flow(handle=0, credit=10)):
            peer.writer.write(each)
            await asyncio.sleep(0.05)
        settled = hostility.listed(b"\x41", hostility.number(0), hostility.number(0), b"\x42", outcome)
        peer.writer.write(hostility.frame(b"\x00S\x15" + settled) * 500)
        await asyncio.sleep(0.1)
        answered = await peer.reader.read(1 << 20)
        assert answered.count(b"\x00S\x15") == 1
        peer.writer.write(hostility.begin_frame(channel=1))
        assert b"\x00S\x11" in await asyncio.wait_for(peer.reader.read(1 << 20), 3)


async def test_a_client_may_pipeline_its_opening_frames(hosted: HostedNamespace):
    async with connected(hosted) as peer:
        peer.writer.write(b"".join(hostility.attached("flights")))
        answered = await peer.reader.readuntil(b"com.microsoft:max-message-batch-size")
        assert answered.startswith(hostility.SASL_HEADER)


@pytest.mark.parametrize("path", [b"/q", b"/$faults"])
async def test_only_the_standard_expect_header_is_accepted(hosted: HostedNamespace, path: bytes):
    method = b"POST " if path == b"/$faults" else b"PUT "
    for expected, status in ((b"100-cont\xee\xda", b"417"), (b"100-Continue", b"100")):
        reader, writer = await asyncio.open_connection(hosted.host, hosted.admin_port)
        writer.write(method + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: " + expected + b"\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 3)).split()[1] == status
        writer.close()


async def test_properties_are_delivered_or_rejected_however_many(hosted: HostedNamespace):
    async with connected(hosted) as peer:
        sender, _ = await attach_links(peer, credit=1)
        for tag, count in {"a million": 1_000_000, "many": 5_000}.items():
            encoded = hostility.many_properties_of(count)
            sender.delivery(tag)
            sender.send(encoded)
            sender.advance()
            await peer.until(lambda tag=tag: tag in peer.answered, seconds=30)
        assert peer.answered == {"a million": Delivery.REJECTED, "many": Delivery.ACCEPTED}
        await peer.until(lambda: len(peer.received) == 1)
        assert len(peer.received[0][1]) > len(encoded)


@pytest.mark.parametrize("kind", hostility.KINDS)
@pytest.mark.parametrize("path", ["flights", "$cbs", "flights/$management"])
async def test_endlessly_nested_values_are_answered(hosted: HostedNamespace, kind: str, path: str):
    async with connected(hosted) as peer:
        sender = peer.sender(peer.begin(), path)
        await peer.until(lambda: sender.credit > 0)
        for section in (b"\x00Sr", b"\x00Ss", b"\x00St", b"\x00Sw"):
            tag = section.hex()
            sender.delivery(tag)
            sender.send(section + hostility.nested(20_000, kind=kind))
            sender.advance()
            await peer.until(lambda tag=tag: tag in peer.answered)
