"""The SASL mechanisms of the service, and what each client gets by its own (AMQP 1.0 part 5, section 5.3)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.descriptions import AccessRight, QueueDescription
from tests.emulator.support.hostile_bytes import HEADER, SASL_HEADER, frame, frames_of, listed, open_frame
from tests.emulator.support.proton_client import Peer, connected, is_closed, is_open

FOUR = b"\xe0\x23\x04\xa3\x07MSSBCBS\x05PLAIN\x09ANONYMOUS\x08EXTERNAL"
ACCEPTED, REFUSED = b"\x50\x00", b"\x50\x01"


@pytest.fixture
async def guarded() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"]) as emulator:
        namespace = emulator["contoso"].namespace
        for path in ("flights", "gates"):
            namespace.create_queue(QueueDescription(path))
        namespace.access_policies.put("listener", rights=[AccessRight.LISTEN], primary_key="k1", secondary_key="k2")
        namespace.access_policies.put("own", rights=[AccessRight.SEND], path="flights", primary_key="f1")
        yield emulator["contoso"]


def init(mechanism: bytes, response: bytes = b"") -> bytes:
    given = bytes((0xA0, len(response))) + response
    symbol = b"\xa3" + bytes((len(mechanism),)) + mechanism
    return frame(b"\x00\x53\x41" + listed(symbol, given), kind=1)


async def outcome(hosted: HostedNamespace, *words: bytes) -> tuple[bytes, bool]:
    """Return the code of the outcome, and whether the connection stays open for AMQP."""
    reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
    try:
        async with asyncio.timeout(5):
            writer.write(SASL_HEADER)
            announced = await reader.readexactly(8 + 14 + len(FOUR))
            assert announced.startswith(SASL_HEADER)
            assert announced.endswith(FOUR)
            for word in words:
                writer.write(word)
                await asyncio.sleep(0.01)
            answered = await reader.readexactly(17)
            assert answered[8:11] == b"\x00\x53\x44"
            assert answered.endswith(b"\x40")
            writer.write(HEADER + open_frame())
            return answered[-3:-1], await reader.read(8) == HEADER
    finally:
        writer.close()


@pytest.mark.parametrize("mechanism", [b"MSSBCBS", b"ANONYMOUS", b"EXTERNAL"])
async def test_a_mechanism_that_leaves_rights_to_tokens_is_accepted(guarded: HostedNamespace, mechanism: bytes):
    assert await outcome(guarded, init(mechanism)) == (ACCEPTED, True)


async def test_the_frame_may_arrive_in_pieces(guarded: HostedNamespace):
    whole = init(b"MSSBCBS")
    assert await outcome(guarded, whole[:3], whole[3:15], whole[15:]) == (ACCEPTED, True)


@pytest.mark.parametrize(
    ("word", "reason"),
    [
        (init(b"SCRAM-SHA-1"), "'SCRAM-SHA-1'; allowed: MSSBCBS, PLAIN, ANONYMOUS, EXTERNAL"),
        (init(b"PLAIN", b"\0listener\0wrong"), "no shared access policy has the name 'listener'"),
        (init(b"PLAIN", b"\0nobody\0k1"), "no shared access policy has the name 'nobody'"),
        (init(b"PLAIN", b"listener"), "malformed"),
        (frame(b"\x00\x53\x43" + listed(b"\xa0\x00"), kind=1), "other than sasl-init"),
    ],
)
async def test_a_refused_client_is_told_and_logged(
    guarded: HostedNamespace, word: bytes, reason: str, caplog: pytest.LogCaptureFixture
):
    assert await outcome(guarded, word) == (REFUSED, False)
    [line] = [each.getMessage() for each in caplog.records if "a client was refused" in each.getMessage()]
    assert reason in line
    assert "wrong" not in line


@pytest.mark.parametrize("size", [4, 5000])
async def test_a_frame_of_an_impossible_size_ends_the_connection(guarded: HostedNamespace, size: int):
    reader, writer = await asyncio.open_connection(guarded.host, guarded.amqp_port)
    writer.write(SASL_HEADER + size.to_bytes(4, "big") + b"\x02\x01\x00\x00")
    async with asyncio.timeout(5):
        answered = await reader.read()
    assert len(frames_of(answered)) == 2
    writer.close()


async def test_a_client_may_start_without_sasl(guarded: HostedNamespace):
    reader, writer = await asyncio.open_connection(guarded.host, guarded.amqp_port)
    writer.write(HEADER + open_frame())
    async with asyncio.timeout(5):
        assert await reader.readexactly(8) == HEADER
    writer.close()


def log_in(peer: Peer, name: str, *, key: str) -> None:
    sasl = peer.transport.sasl()
    sasl.allowed_mechs("PLAIN")
    sasl.allow_insecure_mechs = True
    peer.connection.user, peer.connection.password = name, key


async def test_plain_gives_the_rights_of_the_policy(guarded: HostedNamespace):
    async with connected(guarded) as peer:
        log_in(peer, "Listener", key="k2")
        session = peer.begin()
        receiver, sender = peer.receiver(session, "flights"), peer.sender(session, "flights")
        await peer.until(lambda: is_open(receiver) and is_closed(sender))
        assert "unauthorized-access" in str(sender.remote_condition)


async def test_plain_with_the_policy_of_a_queue_opens_that_queue_only(guarded: HostedNamespace):
    async with connected(guarded) as peer:
        log_in(peer, "own", key="f1")
        session = peer.begin()
        own, other = peer.sender(session, "flights"), peer.sender(session, "gates")
        await peer.until(lambda: own.credit > 0 and is_closed(other))
        assert "unauthorized-access" in str(other.remote_condition)
