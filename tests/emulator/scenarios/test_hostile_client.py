"""Frames about sessions, links and deliveries that must not crash the process.

Proton frees objects on request, and a client can make it report the end of an object twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.hostile_bytes import (
    HEADER,
    SASL,
    attach,
    begin_frame,
    begun,
    frame,
    listed,
    number,
    text,
)
from tests.emulator.support.hostile_conversations import (
    ODD_MAP,
    OUTCOMES,
    accepted_range,
    again_under,
    conversation,
    detach,
    end,
    flow,
    transfer,
)
from tests.emulator.support.proton_client import Peer, connected, send_messages

pytestmark = pytest.mark.simulated
MESSAGE = b"\x00Su\xa0\x01x"


@pytest.fixture
async def hosted() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"], open=True) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        emulator["contoso"].namespace.create_queue(QueueDescription("ordered", requires_session=True))
        yield emulator["contoso"]


async def exchange(peer: Peer, *pieces: bytes) -> bytes:
    """Send pieces one by one; return the replies until nothing more arrives or the connection ends."""
    answered = bytearray()
    for each in pieces:
        peer.writer.write(each)
        try:
            while len(data := await asyncio.wait_for(peer.reader.read(1 << 18), 0.05)) > 0:
                answered += data
        except (TimeoutError, ConnectionError):
            continue
    return bytes(answered)


async def check_still_serves(hosted: HostedNamespace) -> None:
    async with connected(hosted) as peer:
        await send_messages(peer, peer.sender(peer.begin(), "flights"))


@pytest.mark.parametrize(
    "words",
    [
        [begin_frame(), again_under(1, remote=0), end(0), end(1), end(0)],
        [begin_frame(), again_under(1, remote=0) + end(0) + end(1) + end(0)],
        [begin_frame(), end(0) + again_under(1, remote=0) + end(1)],
        [begin_frame() + attach("flights"), again_under(1, remote=0), detach(0, channel=1) + end(0)],
    ],
)
async def test_a_begin_with_remote_channel_closes_only_its_connection(hosted: HostedNamespace, words: list[bytes]):
    for _ in range(20):
        async with connected(hosted) as peer:
            assert b"amqp:not-allowed" in await exchange(peer, b"".join(begun()), *words)
    await check_still_serves(hosted)


@pytest.mark.parametrize("outcome", OUTCOMES[1:])
async def test_a_partially_sent_delivery_is_settled_once(hosted: HostedNamespace, outcome: bytes):
    """It was answered again each time the client settled it; by then all of it was sent, and it was freed."""
    large = b"\x00Su\xb0" + (5000).to_bytes(4, "big") + bytes(5000)
    small_frames = [SASL, HEADER + frame(b"\x00S\x10" + listed(text("x"), text("localhost"), number(512)))]
    links = attach("flights", name="in", handle=0, receiver=True) + attach(
        "flights", name="out", handle=1, receiver=False
    )
    settled = accepted_range(0, 0, outcome=outcome)
    async with connected(hosted) as peer:
        opening = [*small_frames, begin_frame() + links, transfer(large, handle=1, delivery=0)]
        first = await exchange(peer, *opening, flow(handle=0, credit=1, window=1), settled)
        assert first.count(b"\x00S\x14") == 1
        rest = flow(handle=0, credit=1) + transfer(MESSAGE, handle=1, delivery=1) + settled
        assert (await exchange(peer, rest)).count(b"\x00S\x14") > 5
    await check_still_serves(hosted)


async def test_an_undecodable_map_is_refused_with_a_reason(hosted: HostedNamespace, caplog: pytest.LogCaptureFixture):
    async with connected(hosted) as peer:
        odd = attach("ordered", name="in", handle=0, receiver=True, filters=ODD_MAP)
        answered = await exchange(peer, *begun(), begin_frame(), odd)
        assert b"com.microsoft:argument-error" in answered
        rejected = accepted_range(0, 0, outcome=OUTCOMES[4])
        await check_still_serves(hosted)
        receiver = attach("flights", name="other", handle=1, receiver=True)
        await exchange(peer, receiver, flow(handle=1, credit=1), rejected)
        assert not peer.writer.transport.is_closing()
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (b"".join(begin_frame() for _ in range(5001)), b"5000 sessions"),
        (begin_frame() + b"".join(attach("$cbs", name=str(each), handle=each) for each in range(257)), b"256 and 5000"),
    ],
)
async def test_sessions_and_links_are_limited_as_by_the_service(hosted: HostedNamespace, words: bytes, allowed: bytes):
    async with connected(hosted) as peer:
        answered = await exchange(peer, b"".join(begun()), words, b"", b"", b"")
        assert b"amqp:resource-limit-exceeded" in answered
        assert allowed in answered
    await check_still_serves(hosted)


async def test_an_aborted_delivery_returns_its_credit_once(hosted: HostedNamespace):
    async with connected(hosted) as peer:
        opening = b"".join([*begun(), begin_frame(), attach("flights", name="out", handle=0, receiver=False)])
        half = b"".join(
            transfer(b"x", handle=0, delivery=each, more=True) + transfer(b"", handle=0, delivery=None, aborted=True)
            for each in range(600)
        )
        await exchange(peer, opening, half)
        assert not peer.reader.at_eof()
        settled = await exchange(peer, transfer(MESSAGE, handle=0, delivery=600))
        assert b"\x00S\x15" in settled


async def test_hostile_conversations_close_only_their_own_connection(hosted: HostedNamespace):
    for seed in range(60):
        async with connected(hosted) as peer:
            for each in conversation(Random(f"conversation {seed}")):  # noqa: S311 - reproducible
                peer.writer.write(each)
                await asyncio.sleep(0)
            await asyncio.sleep(0.01)
    await check_still_serves(hosted)
