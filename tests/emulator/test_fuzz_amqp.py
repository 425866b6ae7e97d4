"""Issue 3: rubbish never kills the embedded Service Bus, grows it without bound or keeps others from working.

What is said has a fixed seed here; ``python -m tests.emulator.fuzz --seconds N --seed S`` goes on for longer.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from proton import Delivery

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.descriptions import QueueDescription
from tests.emulator import hostility
from tests.emulator.fuzz import MEGABYTE, run
from tests.emulator.peer import connected, is_closed, is_open

SEED = 20_261_121


@pytest.mark.slow
async def test_rubbish_neither_kills_it_nor_grows_it_nor_keeps_others_from_working():
    figures = await run(seed=SEED, rounds=25)
    assert min(figures.said.values()) == 25
    assert figures.round_trips > 10
    assert figures.slowest < 10
    assert figures.memory_most - figures.memory_before < 400 * MEGABYTE
    assert figures.raised == {}


# What was found


@pytest.fixture
async def hosted() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"], open=True, message_kilobytes=102_400) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        yield emulator["contoso"]


async def test_an_address_that_is_no_utf_8_closes_the_connection_with_the_reason(
    hosted: HostedNamespace, caplog: pytest.LogCaptureFixture
):
    async with connected(hosted) as peer:
        for each in hostility.attached("flights"):
            peer.writer.write(each.replace(b"flights", b"fli\xb0hts"))
        async with asyncio.timeout(3):
            answered = await peer.reader.read()
    assert b"amqp:decode-error" in answered
    assert [record for record in caplog.records if record.exc_info] == []


async def test_a_request_whose_place_to_answer_to_is_no_utf_8_is_rejected(hosted: HostedNamespace):
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
async def test_a_delivery_that_is_settled_many_times_in_one_breath_is_settled_once(
    hosted: HostedNamespace, outcome: bytes
):
    """Proton frees a delivery that both sides have settled; the second answer found it gone, and ended the process."""
    async with connected(hosted) as peer:
        sender = peer.sender(peer.begin(), "flights")
        await peer.until(lambda: sender.credit > 0)
        sender.delivery("x")
        sender.send(b"\x00Su\xa0\x01x")
        sender.advance()
        await peer.until(lambda: "x" in peer.answered)
    async with connected(hosted) as peer:
        flow = hostility.listed(
            *[hostility.number(each) for each in (0, 5000, 0, 5000, 0, 0, 10)], b"\x40", b"\x42", b"\x42"
        )
        for each in (*hostility.attached("flights", receiver=True), hostility.frame(b"\x00S\x13" + flow)):
            peer.writer.write(each)
            await asyncio.sleep(0.05)
        settled = hostility.listed(b"\x41", hostility.number(0), hostility.number(0), b"\x42", outcome)
        peer.writer.write(hostility.frame(b"\x00S\x15" + settled) * 500)
        await asyncio.sleep(0.1)
        answered = await peer.reader.read(1 << 20)
        assert answered.count(b"\x00S\x15") == 1
        peer.writer.write(hostility.begin_frame(channel=1))
        assert b"\x00S\x11" in await asyncio.wait_for(peer.reader.read(1 << 20), 3)


async def test_a_client_may_say_all_of_its_opening_at_once(hosted: HostedNamespace):
    async with connected(hosted) as peer:
        peer.writer.write(b"".join(hostility.attached("flights")))
        answered = await peer.reader.readuntil(b"com.microsoft:max-message-batch-size")
        assert answered.startswith(hostility.SASL_HEADER)


@pytest.mark.parametrize("path", [b"/q", b"/$faults"])
async def test_an_expectation_of_odd_bytes_is_refused_and_the_usual_one_met(hosted: HostedNamespace, path: bytes):
    method = b"POST " if path == b"/$faults" else b"PUT "
    for expected, status in ((b"100-cont\xee\xda", b"417"), (b"100-Continue", b"100")):
        reader, writer = await asyncio.open_connection(hosted.host, hosted.admin_port)
        writer.write(method + path + b" HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: " + expected + b"\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 3)).split()[1] == status
        writer.close()


async def test_a_million_properties_are_taken_in_and_given_out(hosted: HostedNamespace):
    async with connected(hosted) as peer:
        session = peer.begin()
        sender, receiver = peer.sender(session, "flights"), peer.receiver(session, "flights")
        receiver.flow(1)
        await peer.until(lambda: sender.credit > 0 and is_open(receiver))
        words = hostility.many_properties_of(1_000_000)
        sender.delivery("many")
        sender.send(words)
        sender.advance()
        await peer.until(lambda: len(peer.received) == 1, seconds=30)
        assert len(peer.received[0][1]) > len(words)


@pytest.mark.parametrize("kind", hostility.KINDS)
@pytest.mark.parametrize("path", ["flights", "$cbs", "flights/$management"])
async def test_values_within_values_without_end_are_answered(hosted: HostedNamespace, kind: str, path: str):
    async with connected(hosted) as peer:
        sender = peer.sender(peer.begin(), path)
        await peer.until(lambda: sender.credit > 0)
        for section in (b"\x00Sr", b"\x00Ss", b"\x00St", b"\x00Sw"):
            tag = section.hex()
            sender.delivery(tag)
            sender.send(section + hostility.nested(20_000, kind=kind))
            sender.advance()
            await peer.until(lambda tag=tag: tag in peer.answered)


def test_the_same_seed_says_the_same():
    recorded = [hostility.attached("flights") * 3]
    cases = {**hostility.amqp_cases(recorded), **hostility.http_cases()}
    for case in cases.values():
        assert case(Random(SEED)) == case(Random(SEED))  # noqa: S311 - it is to be the same
