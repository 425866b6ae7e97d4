"""Issue 3, "Wire": one port takes AMQP in clear, under TLS and over WebSocket, and administration by HTTP and HTTPS."""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import stat
from collections.abc import AsyncIterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient as BlockingServiceBusClient
from azure.servicebus import ServiceBusMessage, TransportType
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import ServiceBusConnectionError
from azure.servicebus.management import ServiceBusAdministrationClient as BlockingAdministrationClient
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator import Emulator, Fault, FaultKind, HostedNamespace, Operation
from servicebus_emulator.amqp.greeting import Speech, speech_of
from servicebus_emulator.amqp.patience import Patience
from servicebus_emulator.amqp.websocket import accept_key, unmasked
from servicebus_emulator.certificates import CertificateError, GivenCertificate, MadeCertificate
from servicebus_emulator.engine.descriptions import QueueDescription
from tests.emulator.talk import open_link

# azure-servicebus 7.15 asks aiohttp for a WebSocket in clear with ssl=None.
pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
LARGE = "x" * 200_000


@pytest.fixture
async def hosted() -> AsyncIterator[HostedNamespace]:
    async with Emulator(["contoso"], patience=Patience(greeting_seconds=0.4)) as emulator:
        served = emulator["contoso"]
        served.namespace.create_queue(QueueDescription("flights"))
        yield served


def ways_in(hosted: HostedNamespace) -> dict[str, tuple[str, dict[str, Any]]]:
    """What the official clients are given to come in by each way."""
    tls = {"connection_verify": str(hosted.ca_file)}
    there = {"custom_endpoint_address": hosted.endpoint_address}
    return {
        "in clear": (hosted.connection_string, {}),
        "TLS": (hosted.tls_connection_string, {**tls, **there, "transport_type": TransportType.Amqp}),
        "WebSocket": (hosted.connection_string, {**there, "transport_type": TransportType.AmqpOverWebsocket}),
        "WebSocket under TLS": (
            hosted.tls_connection_string,
            {**tls, **there, "transport_type": TransportType.AmqpOverWebsocket},
        ),
    }


WAYS = ("in clear", "TLS", "WebSocket", "WebSocket under TLS")


@pytest.mark.parametrize("way", WAYS)
async def test_the_asynchronous_client_sends_and_receives(hosted: HostedNamespace, way: str):
    connection, options = ways_in(hosted)[way]
    async with ServiceBusClient.from_connection_string(connection, retry_total=0, **options) as client:
        sender, receiver = client.get_queue_sender("flights"), client.get_queue_receiver("flights")
        await open_link(sender)
        await open_link(receiver)
        await sender.send_messages(ServiceBusMessage(LARGE), timeout=5)
        [message] = await receiver.receive_messages(1, max_wait_time=5)
        await receiver.complete_message(message)
        assert str(message) == LARGE


@pytest.mark.parametrize("way", WAYS)
async def test_the_blocking_client_sends_and_receives(hosted: HostedNamespace, way: str):
    connection, options = ways_in(hosted)[way]

    def talk() -> str:
        with (
            BlockingServiceBusClient.from_connection_string(connection, retry_total=0, **options) as client,
            client.get_queue_sender("flights") as sender,
            client.get_queue_receiver("flights") as receiver,
        ):
            sender.send_messages(ServiceBusMessage(LARGE), timeout=5)
            [message] = receiver.receive_messages(1, max_wait_time=5)
            receiver.complete_message(message)
            return str(message)

    assert await asyncio.to_thread(talk) == LARGE


async def test_one_connection_string_serves_messages_and_administration(hosted: HostedNamespace):
    ca_file = str(hosted.ca_file)
    for connection in (hosted.connection_string, hosted.tls_connection_string, hosted.admin_connection_string):
        client = ServiceBusAdministrationClient.from_connection_string(connection, connection_verify=ca_file)
        async with client:
            assert [queue.name async for queue in client.list_queues()] == ["flights"]

    def list_queues(connection: str) -> list[str]:
        with BlockingAdministrationClient.from_connection_string(connection, connection_verify=ca_file) as client:
            return [queue.name for queue in client.list_queues()]

    assert await asyncio.to_thread(list_queues, hosted.tls_connection_string) == ["flights"]
    assert await asyncio.to_thread(list_queues, hosted.admin_connection_string) == ["flights"]


@pytest.mark.parametrize("way", WAYS)
async def test_faults_of_connections_strike_whatever_the_way_in(hosted: HostedNamespace, way: str):
    connection, options = ways_in(hosted)[way]
    async with ServiceBusClient.from_connection_string(connection, retry_total=0, **options) as client:
        sender = client.get_queue_sender("flights")

        async def send(timeout: float = 3) -> None:
            await asyncio.wait_for(sender.send_messages(ServiceBusMessage("x"), timeout=timeout), 8)

        await send()
        for fault in (
            Fault(kind=FaultKind.RESET, on=(Operation.SEND,), count=1),
            Fault(kind=FaultKind.RESET, on=(Operation.CONNECT,), count=1),
        ):
            hosted.set_fault(fault)
            with pytest.raises(Exception, match=r"."):
                await send()
        await send()
        began = asyncio.get_running_loop().time()
        hosted.set_fault(Fault(kind=FaultKind.LATENCY, delay=0.3))
        await send()
        assert asyncio.get_running_loop().time() - began > 0.29
        hosted.set_fault(Fault(kind=FaultKind.FREEZE, duration=0.5))
        await send()
        assert asyncio.get_running_loop().time() - began > 0.8
        hosted.clear_faults()


async def test_a_port_that_refuses_is_kept_for_all_ways(hosted: HostedNamespace):
    hosted.set_fault(Fault(kind=FaultKind.REFUSE))
    connection, options = ways_in(hosted)["TLS"]
    async with ServiceBusClient.from_connection_string(connection, retry_total=0, **options) as client:
        sender = client.get_queue_sender("flights")
        with pytest.raises(ServiceBusConnectionError):
            await sender.send_messages(ServiceBusMessage("x"), timeout=3)
        hosted.clear_faults()
        await sender.send_messages(ServiceBusMessage("x"), timeout=3)


async def test_a_host_of_several_addresses_is_served_on_one_port_of_all():
    async with Emulator(["contoso"], host="localhost") as emulator:
        port = emulator["contoso"].amqp_port
        found = await asyncio.get_running_loop().getaddrinfo("localhost", port, type=socket.SOCK_STREAM)
        for address in {address[0] for *_, address in found}:
            reader, writer = await asyncio.open_connection(address, port)
            writer.write(SASL_HEADER)
            assert await asyncio.wait_for(reader.readexactly(8), 3) == SASL_HEADER
            writer.close()


async def test_who_says_nothing_or_too_little_is_dropped(hosted: HostedNamespace):
    said = (b"", b"AM", b"GET /", b"\x16")
    opened = [await asyncio.open_connection(hosted.host, hosted.amqp_port) for _ in said]
    for (_, writer), words in zip(opened, said, strict=True):
        writer.write(words)
    async with asyncio.timeout(3):
        for reader, writer in opened:
            assert await reader.read() == b""
            writer.close()
    assert (hosted.counts.silent, hosted.counts.failed_handshakes) == (3, 1)


async def test_rubbish_is_told_what_is_spoken_here_and_counted(hosted: HostedNamespace):
    for rubbish in (b"\x00\x01\x02\x03", b"hello\r\n", b"A" * 20_000, b"\xff" * 100):
        reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
        writer.write(rubbish)
        assert (await asyncio.wait_for(reader.readexactly(8), 3)) == b"AMQP\x00\x01\x00\x00"
        writer.close()
    reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
    writer.write(b"\x16\x03\x01 this is no hello of TLS, whatever its first byte says")
    await asyncio.wait_for(reader.read(), 3)
    writer.close()
    assert (hosted.counts.rubbish, hosted.counts.failed_handshakes) == (4, 1)
    reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
    writer.write(SASL_HEADER)
    assert await asyncio.wait_for(reader.readexactly(8), 3) == SASL_HEADER
    writer.close()


async def test_a_websocket_that_breaks_the_rules_is_closed_with_the_reason(hosted: HostedNamespace):
    request = (
        b"GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
    )
    for frames, code in (
        (b"\x82\x05hello", 1002),  # not masked
        (b"\xc2\x80\x00\x00\x00\x00", 1002),  # a reserved bit
        (b"\x81\x80\x00\x00\x00\x00", 1003),  # text
        (b"\x89\xfe\x01\x00\x00\x00\x00\x00", 1002),  # a ping of 256 bytes
        (b"\x88\x80\x00\x00\x00\x00", 1000),  # goodbye
    ):
        reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
        writer.write(request)
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 3)
        # The example of RFC 6455, section 1.3.
        assert b" 101 " in head
        assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head
        assert b"AMQPWSB10" in head
        writer.write(b"\x89\x82\x01\x02\x03\x04" + bytes((ord("h") ^ 1, ord("i") ^ 2)) + frames)
        answer = await asyncio.wait_for(reader.read(), 3)
        assert answer.startswith(b"\x8a\x02hi")
        assert answer.endswith(b"\x88\x02" + code.to_bytes(2, "big"))
        writer.close()


@pytest.mark.parametrize(
    ("field", "status"),
    [(b"Upgrade: h2c", b" 426 "), (b"Sec-WebSocket-Protocol: mqtt", b" 400 "), (b"X: " + b"y" * 20_000, b" 431 ")],
)
async def test_a_websocket_that_asks_for_something_else_is_refused(
    hosted: HostedNamespace, field: bytes, status: bytes
):
    upgrade = b"" if field.startswith(b"Upgrade") else b"Upgrade: websocket\r\n"
    reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
    writer.write(b"GET /$servicebus/websocket HTTP/1.1\r\nSec-WebSocket-Key: eA==\r\n" + upgrade + field)
    if status != b" 431 ":
        writer.write(b"\r\n\r\n")
    assert status in await asyncio.wait_for(reader.read(), 3)
    writer.close()


@given(payload=st.binary(max_size=200), key=st.binary(min_size=4, max_size=4), cuts=st.lists(st.integers(0, 200)))
def test_a_mask_comes_off_however_the_payload_is_cut(payload: bytes, key: bytes, cuts: list[int]):
    masked = bytes(byte ^ key[place % 4] for place, byte in enumerate(payload))
    places = sorted({0, len(payload), *(min(cut, len(payload)) for cut in cuts)})
    parts = [unmasked(masked[start:end], key=key, offset=start) for start, end in pairwise(places)]
    assert b"".join(parts) == payload


def test_the_answer_to_a_websocket_key_is_that_of_the_standard():
    assert accept_key(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


@pytest.mark.parametrize(
    ("head", "speech"),
    [
        (b"", None),
        (b"AMQ", None),
        (b"AMQP", Speech.AMQP),
        (b"AMQ\x00", Speech.RUBBISH),
        (b"AMQX / HTTP/1.1\r\n", Speech.HTTP),
        (b"GET", None),
        (b"GET /q HTTP/1.1\r\n", Speech.HTTP),
        (b"PUT /$servicebus/websocket HTTP/1.1\r\n", Speech.HTTP),
        (b"GET /$servicebus/websocket HTTP/1.1\r\n", Speech.WEBSOCKET),
        (b"GET /%24ServiceBus/WebSocket?x=1 HTTP/1.1\n", Speech.WEBSOCKET),
        (b"GET /" + b"a" * 9000, Speech.RUBBISH),
        (b"get / HTTP/1.1\r\n", Speech.RUBBISH),
        (b"\x80abc", Speech.RUBBISH),
    ],
)
def test_what_is_spoken_is_told_from_the_first_words(head: bytes, speech: Speech | None):
    assert speech_of(head) is speech


@given(head=st.binary(max_size=40))
def test_more_words_never_change_what_was_understood(head: bytes):
    verdicts = [speech_of(head[:size]) for size in range(len(head) + 1)]
    first = next((verdict for verdict in verdicts if verdict is not None), None)
    assert all(verdict in {None, first} for verdict in verdicts)


# Certificates


def test_a_made_certificate_holds_for_this_machine_and_is_kept(tmp_path: Path):
    made = MadeCertificate(tmp_path / "tls", names=["sb.example.org", "0.0.0.0"])  # noqa: S104 - a name it cannot hold for
    first = made.ca_file.read_bytes()
    key_file = tmp_path / "tls" / "server.key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls" / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "sb.example.org"} <= set(names.get_values_for_type(x509.DNSName))
    assert {"127.0.0.1", "::1"} == {str(each) for each in names.get_values_for_type(x509.IPAddress)}
    made.close()
    again = MadeCertificate(tmp_path / "tls", names=["sb.example.org"])
    assert again.ca_file.read_bytes() == first
    assert again.context().minimum_version is ssl.TLSVersion.TLSv1_2
    assert MadeCertificate(tmp_path / "tls", names=["other.example.org"]).ca_file.read_bytes() != first


def test_a_certificate_that_ends_soon_is_made_anew(tmp_path: Path):
    first = MadeCertificate(tmp_path).ca_file.read_bytes()
    made_for = tmp_path / "names.txt"
    made_for.write_text(re.sub(r"^\S+", "2020-01-01T00:00:00+00:00", made_for.read_text()))
    assert MadeCertificate(tmp_path).ca_file.read_bytes() != first


def test_without_a_folder_a_certificate_lasts_until_the_end():
    made = MadeCertificate(None)
    ca_file = made.ca_file
    assert ca_file.is_file()
    made.close()
    assert not ca_file.exists()


async def test_a_given_certificate_is_served(tmp_path: Path):
    made = MadeCertificate(tmp_path)
    authority = made.ca_file
    given_one = GivenCertificate(tmp_path / "server.pem", key=tmp_path / "server.key")
    async with Emulator(["contoso"], certificates=given_one) as emulator:
        port = emulator["contoso"].amqp_port
        context = ssl.create_default_context(cafile=authority)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(SASL_HEADER)
        assert await asyncio.wait_for(reader.readexactly(8), 3) == SASL_HEADER
        writer.transport.abort()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
        writer.transport.abort()


def test_a_certificate_that_cannot_be_used_is_refused_with_the_reason(tmp_path: Path):
    MadeCertificate(tmp_path / "a").context()
    MadeCertificate(tmp_path / "b").context()
    for certificate, key in (
        (tmp_path / "a" / "server.pem", tmp_path / "b" / "server.key"),
        (tmp_path / "none.pem", tmp_path / "a" / "server.key"),
        (tmp_path / "a" / "server.key", tmp_path / "a" / "server.pem"),
    ):
        with pytest.raises(CertificateError, match=r"allowed: two PEM files"):
            GivenCertificate(certificate, key=key)


@pytest.mark.parametrize(
    "half",
    [
        b"GET /$namespaceinfo HTTP/1.1\r\nHost: x\r\n",
        b"GET /$servicebus/websocket HTTP/1.1\r\nUpgrade: websocket\r\n",
    ],
)
@pytest.mark.parametrize("port", ["amqp_port", "admin_port"])
async def test_a_client_that_sends_half_a_head_is_dropped(hosted: HostedNamespace, half: bytes, port: str):
    reader, writer = await asyncio.open_connection(hosted.host, getattr(hosted, port))
    writer.write(half)
    async with asyncio.timeout(3):
        with suppress(ConnectionError):
            assert await reader.read() == b""
    writer.close()


@pytest.mark.parametrize("port", ["amqp_port", "admin_port"])
async def test_a_head_that_comes_in_pieces_is_answered(hosted: HostedNamespace, port: str):
    reader, writer = await asyncio.open_connection(hosted.host, getattr(hosted, port))
    for piece in (b"GET /health HT", b"TP/1.1\r\nHost: x\r", b"\n\r\n"):
        writer.write(piece)
        await asyncio.sleep(0.01)
    assert (await asyncio.wait_for(reader.readline(), 3)).split()[1] == b"200"
    writer.close()
