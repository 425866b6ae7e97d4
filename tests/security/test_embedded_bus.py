"""Attacks on the embedded Service Bus."""

from __future__ import annotations

import asyncio
import gc
import json
from contextlib import suppress
from itertools import product
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
from azure.servicebus import ServiceBusMessage
from proton import Delivery

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.admin import http_requests
from servicebus_emulator.amqp.codec.sections import SectionCode
from servicebus_emulator.amqp.codec.value_codec import Timestamp, encode
from servicebus_emulator.amqp.nodes.management import ManagementNode
from servicebus_emulator.amqp.nodes.request_response import Request
from servicebus_emulator.amqp.session import transactions
from servicebus_emulator.amqp.session.connection import AmqpConnection
from servicebus_emulator.config import parse_config
from servicebus_emulator.engine.model.access_policy import ROOT_POLICY
from servicebus_emulator.engine.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.model.errors import InvalidArgument
from servicebus_emulator.engine.namespace.entities import SubQueue
from servicebus_emulator.security.authorizer import SIGNATURE_KIND
from tests.emulator.support.authorizers import config_with_rules, signed_headers
from tests.emulator.support.encoded_messages import listed, section
from tests.emulator.support.hostile_bytes import COORDINATOR, attach, begin_frame, begun
from tests.emulator.support.hostile_conversations import transfer
from tests.emulator.support.proton_client import condition_of, connected, encoded_message, is_closed, is_open
from tests.emulator.support.sdk_client import connect_sdk
from tests.emulator.support.transactions import TransactionalClient

TRANSACTIONAL = 0x34


@pytest.mark.parametrize("count", [1, 2])
async def test_a_body_that_is_an_encoded_message_is_delivered_as_a_body(count: int):
    encoded = section(SectionCode.PROPERTIES, listed(encode("inner"))) + section(
        SectionCode.DATA, encode(b"the inner one")
    )
    async with Emulator(["contoso"]) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        async with connect_sdk(emulator["contoso"]) as sdk, sdk.queue("flights") as (sender, receiver):
            sent = [ServiceBusMessage(encoded, message_id=f"outer {number}") for number in range(count)]
            await sender.send_messages(sent if count > 1 else sent[0])
            received = await receiver.receive_messages(10)

    assert [(message.message_id, b"".join(message.body)) for message in received] == [
        (f"outer {number}", encoded) for number in range(count)
    ]


KEY = "a key of one's own, which the default client does not know".replace(" ", "-")


async def http(hosted: HostedNamespace, head: str, body: bytes = b"", *, port: int | None = None) -> bytes:
    """Send one request as it is, and return all bytes until the server closes the connection."""
    reader, writer = await asyncio.open_connection(hosted.host, hosted.admin_port if port is None else port)
    try:
        writer.write(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        return await asyncio.wait_for(reader.read(), 20)
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


@pytest.mark.parametrize("where", ["settings", "configuration"])
async def test_the_default_client_gets_no_token_once_a_key_is_configured(where: str):
    given: dict[str, Any] = {"key": KEY}
    if where == "configuration":
        rule = {"KeyName": ROOT_POLICY, "PrimaryKey": KEY, "Rights": ["Manage", "Send", "Listen"]}
        given = {"configs": parse_config(config_with_rules(namespace=[rule]))}
    form = "grant_type=client_credentials&client_id=servicebus-emulator&client_secret=CLIENT_SECRET_VALUE"
    form += "&scope=https%3A%2F%2Fservicebus.azure.net%2F.default"
    head = "POST /t/oauth2/v2.0/token HTTP/1.1\nHost: localhost\nConnection: close\n"
    head += f"Content-Type: application/x-www-form-urlencoded\nContent-Length: {len(form)}"
    answers = []
    for settings in ({}, given):
        async with Emulator(["contoso"], **settings) as emulator:
            answers.append(await http(emulator["contoso"], head, form.encode()))

    assert b"access_token" in answers[0]
    assert b"access_token" not in answers[1]
    assert b" 401 " in answers[1].partition(b"\r\n")[0]


SIGNED = "\nAuthorization: " + signed_headers()["Authorization"]
SIGNED_WITH_OWN = "\nAuthorization: " + signed_headers(key=KEY)["Authorization"]


# With the key of the documentation a page can sign its requests itself; a key of one's own it does not know.
@pytest.mark.parametrize(
    ("given", "token"),
    [({"open": True}, ""), ({"open": True}, "\nAuthorization: any"), ({}, SIGNED), ({"key": KEY}, SIGNED_WITH_OWN)],
)
async def test_a_page_whose_name_is_rebound_to_this_machine_is_refused(given: dict[str, Any], token: str):
    answers: dict[tuple[str, str], bytes] = {}
    paths = ("/$faults", "/$Resources/queues?api-version=2021-05", "/$page/overview")
    local = ("localhost", "127.0.0.1:5300", "[::1]", "contoso.servicebus.windows.net")
    foreign = ["evil.example", "127.0.0.1.evil", "servicebus.windows.net.evil", "[::1].evil", "127.0.0.1%00.evil"]
    foreign += ["evil@localhost", "localhost/", "localhost/evil", "localhost?evil", "localhost#evil"]
    async with Emulator(["contoso"], **given) as emulator:
        for path, host in product(paths, (*local, *foreign)):
            head = f"GET {path} HTTP/1.1\nHost: {host}{token}\nConnection: close"
            answers[path, host] = (await http(emulator["contoso"], head)).split()[1]

    allowed = {*local, *foreign} if "key" in given else {*local}
    assert answers == {each: b"200" if each[1] in allowed else b"401" for each in answers}


@pytest.mark.parametrize("given", [{"open": True}, {}, {"key": KEY}])
async def test_what_needs_no_token_is_refused_to_a_page_whose_name_is_rebound(given: dict[str, Any]):
    answers: dict[tuple[str, str], bytes] = {}
    issuer = "/tenant/v2.0/.well-known/openid-configuration"
    async with Emulator(["contoso"], **given) as emulator:
        for path, host in product(("/health", "/metrics", "/$time", issuer), ("localhost:5300", "evil.example")):
            head = f"GET {path} HTTP/1.1\nHost: {host}\nConnection: close"
            answers[path, host] = (await http(emulator["contoso"], head)).split()[1]

    assert answers == {each: b"200" if each[1] == "localhost:5300" else b"401" for each in answers}


@pytest.mark.parametrize(("given", "guarded"), [({}, False), ({"open": True}, False), ({"key": KEY}, True)])
async def test_no_page_of_another_host_opens_a_websocket_unless_it_needs_a_secret(given: dict[str, Any], guarded: bool):
    head = "GET /$servicebus/websocket HTTP/1.1\nHost: {}\nConnection: Upgrade\nUpgrade: websocket\n"
    head += "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\nSec-WebSocket-Version: 13\nSec-WebSocket-Protocol: amqp"
    opened: dict[tuple[str, str], bool] = {}
    async with Emulator(["contoso"], **given) as emulator:
        hosted = emulator["contoso"]
        for host, origin in (
            ("localhost", ""),
            ("localhost", "http://127.0.0.1:5672"),
            ("localhost", "http://localhost:3000"),
            ("contoso.servicebus.windows.net:443", "https://contoso.servicebus.windows.net"),
            ("localhost", "https://evil.example"),
            ("localhost", "null"),
            ("evil.example", "http://evil.example"),
            ("localhost", "https://evil.servicebus.windows.net"),
            ("contoso.servicebus.windows.net", "https://evil.servicebus.windows.net"),
            ("localhost", "http://evil@localhost"),
            ("localhost", "https://evil.example\nOrigin: http://localhost"),
            ("localhost", "http://localhost\nOrigin: https://evil.example"),
        ):
            reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
            named = "" if origin == "" else f"\nOrigin: {origin}"
            writer.write((head.format(host) + named).replace("\n", "\r\n").encode() + b"\r\n\r\n")
            opened[host, origin] = b" 101 " in await asyncio.wait_for(reader.readline(), 20)
            writer.transport.abort()

    assert [*opened.values()] == [*[True] * 4, *[guarded] * 8]


@pytest.mark.parametrize("given", [{}, {"open": True}])
async def test_a_rebound_page_manages_no_namespaces(given: dict[str, Any]):
    path = "/subscriptions/00000000-0000-0000-0000-000000000000/providers/Microsoft.ServiceBus/namespaces"
    form = "grant_type=client_credentials&client_id=servicebus-emulator&client_secret=CLIENT_SECRET_VALUE"
    form += "&scope=https%3A%2F%2Fmanagement.azure.com%2F.default"
    asked = f"Connection: close\nContent-Type: application/x-www-form-urlencoded\nContent-Length: {len(form)}"
    statuses: dict[str, bytes] = {}
    async with Emulator(["contoso"], **given) as emulator:
        hosted = emulator["contoso"]
        issued = await http(hosted, f"POST /t/oauth2/v2.0/token HTTP/1.1\nHost: localhost\n{asked}", form.encode())
        token = json.loads(issued.partition(b"\r\n\r\n")[2])["access_token"]
        for host in ("localhost", "evil.example"):
            head = f"GET {path}?api-version=2024-01-01 HTTP/1.1\nHost: {host}\nConnection: close\n"
            port = urlsplit(emulator.arm_url).port
            answer = await http(hosted, head + f"Authorization: Bearer {token}", port=port)
            statuses[host] = answer.split()[1]

    assert statuses == {"localhost": b"200", "evil.example": b"401"}


ENTRY = (
    '<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><{0} xmlns="http://schemas.microsoft.com/'
    'netservices/2010/10/servicebus/connect"></{0}></content></entry>'
)


@pytest.mark.parametrize("mark", ["\u202e", "\u2066", "\u200f", "\u2028", "\x85"])
async def test_names_that_would_be_shown_as_others_are_refused(mark: str):
    kinds = {"q{}": "Queue", "t{}": "Topic", "topic/Subscriptions/s{}": "Subscription"}
    async with Emulator(["contoso"]) as emulator:
        hosted = emulator["contoso"]
        hosted.namespace.create_topic(TopicDescription("topic"))
        answers = []
        for path, kind in kinds.items():
            body = ENTRY.format(f"{kind}Description").encode()
            named = quote(path.format(f"{mark}x"))
            head = f"PUT /{named}?api-version=2021-05 HTTP/1.1\nHost: localhost\nConnection: close{SIGNED}\n"
            answers.append(await http(hosted, head + f"Content-Length: {len(body)}", body))

    assert [each.split()[1] for each in answers] == [b"400"] * 3


async def test_open_transactions_hold_little(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(transactions, "_MAX_HELD_BYTES", 20_000)

    def attack(hosted: HostedNamespace) -> list[int]:
        with TransactionalClient.connected(hosted) as client:
            sender, states = client.sender("flights"), []
            for transaction in (client.declare() for _ in range(3)):
                states += [client.send(transaction, sender.link, "x" * 10_000) for _ in range(2)]
            return states

    async with Emulator(["contoso"]) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        states = await asyncio.to_thread(attack, emulator["contoso"])

    # What exceeds the limit is taken once, so that a large message can be sent at all.
    assert states == [TRANSACTIONAL] * 2 + [Delivery.REJECTED] * 4


async def test_tokens_of_clients_without_a_login_take_little_memory():
    async with Emulator(["contoso"]) as emulator, connected(emulator["contoso"]) as peer:
        session = peer.begin()
        links = [peer.sender(session, "$cbs")]
        await peer.until(lambda: links[0].credit > 0)
        links[0].delivery("large")
        links[0].send(encoded_message(100_000))
        links[0].advance()
        await peer.until(lambda: "large" in peer.answered)
        for _ in range(40):
            links.append(peer.sender(session, "$cbs"))
            await peer.until(lambda: is_open(links[-1]) or is_closed(links[-1]))
        await peer.until(lambda: is_closed(links[-1]))

    # Up to 64 KiB for each token, and 32 links: a connection holds 2 MiB, where it held 2 MiB for each of 5,000 links.
    assert peer.answered["large"] == Delivery.REJECTED
    assert sum(map(is_closed, links)) == 9
    assert condition_of(links[-1]) == "amqp:resource-limit-exceeded"


TOO_MUCH, UNAUTHORIZED = b"amqp:resource-limit-exceeded", b"amqp:unauthorized-access"
FLOODS: dict[str, tuple[list[bytes], bytes]] = {
    "answers are not taken": ([attach("$cbs"), attach("$cbs", name="in", handle=1, receiver=True)], TOO_MUCH),
    "the link receives": ([attach("$cbs", receiver=True)], b"amqp:not-allowed"),
    "the attach was refused": ([attach("flights")], UNAUTHORIZED),
    "many attaches were refused": ([attach("x", name=f"{each}", handle=each) for each in range(101)], TOO_MUCH),
    "transactions need a login": ([attach(COORDINATOR)], UNAUTHORIZED),
}


@pytest.mark.parametrize(("links", "answer"), FLOODS.values(), ids=FLOODS)
async def test_nothing_is_kept_of_what_clients_without_a_login_send(links: list[bytes], answer: bytes):
    properties: dict[Any, Any] = {"operation": "put-token", "type": SIGNATURE_KIND, "name": "sb://contoso/flights"}
    token = section(SectionCode.APPLICATION_PROPERTIES, encode(properties)) + section(
        SectionCode.VALUE, encode("x" * 4000)
    )
    answers = b""
    before = {id(each) for each in gc.get_objects() if type(each) is AmqpConnection}
    async with Emulator(["contoso"]) as emulator, connected(emulator["contoso"]) as peer:
        peer.writer.write(b"".join(begun()) + begin_frame() + attach("$cbs", name="first", handle=201))
        await peer.reader.readuntil(b"first")
        with suppress(ConnectionError):
            peer.writer.write(b"".join(links))
            for number in range(250):
                peer.writer.write(transfer(token, handle=0, delivery=number))
            # Once this is answered, or the connection ended, all of it has been read.
            peer.writer.write(attach("$cbs", name="last", handle=200))
            while b"last" not in answers and len(more := await asyncio.wait_for(peer.reader.read(1 << 18), 20)) > 0:
                answers += more
        kept = 0
        for served in [each for each in gc.get_objects() if type(each) is AmqpConnection and id(each) not in before]:
            link = None if served.closed else served._connection.link_head(0)
            while link is not None:
                kept, link = kept + link.unsettled, link.next(0)

    assert answer in answers
    assert kept == 0


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        ("peek-message", {"from-sequence-number": 1, "message-count": -1}),
        ("peek-message", {"from-sequence-number": 1, "message-count": -(2**31)}),
        *(
            ("add-rule", {"rule-name": "r", "rule-description": {"correlation-filter": {"properties": {"x": each}}}})
            for each in (Timestamp(2**63 - 1), Timestamp(-(2**63)))
        ),
    ],
)
async def test_an_impossible_request_is_refused_and_ends_no_connection(operation: str, body: Any):
    async with Emulator(["contoso"]) as emulator:
        namespace = emulator["contoso"].namespace
        namespace.create_topic(TopicDescription("delays"))
        namespace.create_subscription(SubscriptionDescription("delays", "long"))
        properties: dict[Any, Any] = {"operation": f"com.microsoft:{operation}"}
        request = Request(message_id=b"\x40", reply_to=None, properties=properties, body=body)
        node = ManagementNode(namespace.find("delays/Subscriptions/long"), sub_queue=SubQueue.MAIN)
        with pytest.raises(InvalidArgument, match=r"allowed: 0 and more|a time after the year 9999"):
            node.execute(request)


async def test_a_client_that_reads_no_answer_to_its_pings_gets_few():
    head = b"GET /$servicebus/websocket HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    head += b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: amqp\r\n\r\n"
    pings = (b"\x89\xfd\0\0\0\0" + bytes(125)) * 8_000
    async with Emulator(["contoso"], open=True) as emulator:
        hosted = emulator["contoso"]
        reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port, limit=1024)
        writer.write(head)
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(20):
            writer.write(pings)
            await writer.drain()
        answered = 0
        with suppress(TimeoutError):
            while received := await asyncio.wait_for(reader.read(1 << 20), 0.5):
                answered += len(received)
        writer.transport.abort()

    # What the buffers of two sockets take, of 20 MB.
    assert 0 < answered < 10_000_000


async def test_a_compressed_body_is_refused_in_one_line(caplog: pytest.LogCaptureFixture):
    head = "POST /$faults HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Encoding: gzip\n"
    async with Emulator(["contoso"], open=True) as emulator:
        answer = await http(emulator["contoso"], head + "Connection: close\nContent-Length: 2", b"{}")

    assert answer.split()[1] == b"415"
    assert "Traceback" not in caplog.text


async def test_connections_without_requests_are_closed(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_requests, "_KEEP_ALIVE_SECONDS", 0.3)
    async with Emulator(["contoso"]) as emulator:
        for port in (emulator["contoso"].admin_port, emulator["contoso"].amqp_port, urlsplit(emulator.arm_url).port):
            assert await http(emulator["contoso"], "GET /health HTTP/1.1\nHost: localhost", port=port)


@pytest.mark.parametrize("path", ["/$faults", "/flights?api-version=2021-05", "/t/oauth2/v2.0/token"])
async def test_bodies_that_are_half_sent_are_given_up(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_requests, "_BODY_SECONDS", 0.3)
    kind = "application/x-www-form-urlencoded" if "token" in path else "application/json"
    head = f"POST {path} HTTP/1.1\nHost: localhost\nContent-Type: {kind}\nContent-Length: 1000000"
    async with Emulator(["contoso"], open=True) as emulator:
        started = asyncio.get_running_loop().time()
        await asyncio.gather(*(http(emulator["contoso"], head, b"x" * 100_000) for _ in range(20)))

    assert asyncio.get_running_loop().time() - started < 15
