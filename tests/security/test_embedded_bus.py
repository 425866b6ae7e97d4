"""Attacks on the embedded Service Bus."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.admin import http_requests
from servicebus_emulator.amqp.codec.sections import SectionCode
from servicebus_emulator.amqp.codec.value_codec import encode
from servicebus_emulator.config import parse_config
from servicebus_emulator.engine.model.access_policy import ROOT_POLICY
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.emulator.support.authorizers import config_with_rules
from tests.emulator.support.encoded_messages import listed, section
from tests.emulator.support.sdk_client import connect_sdk


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


async def http(hosted: HostedNamespace, head: str, body: bytes = b"") -> bytes:
    """Send one request as it is, and return all bytes until the server closes the connection."""
    reader, writer = await asyncio.open_connection(hosted.host, hosted.admin_port)
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


@pytest.mark.parametrize("path", ["/$faults", "/$Resources/queues?api-version=2021-05", "/$page/overview"])
async def test_a_page_whose_name_is_rebound_to_this_machine_is_refused(path: str):
    hosts = dict.fromkeys(("localhost", "127.0.0.1:5300", "[::1]"), b"200")
    hosts |= dict.fromkeys(("evil.example", "127.0.0.1.evil"), b"401")
    async with Emulator(["contoso"], open=True) as emulator:
        for token in ("", "\nAuthorization: any"):
            for host, status in hosts.items():
                head = f"GET {path} HTTP/1.1\nHost: {host}{token}\nConnection: close"
                answer = await http(emulator["contoso"], head)
                assert answer.partition(b"\r\n")[0].split()[1] == status, (host, token)


@pytest.mark.parametrize("path", ["/$faults", "/flights?api-version=2021-05", "/t/oauth2/v2.0/token"])
async def test_bodies_that_are_half_sent_are_given_up(path: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(http_requests, "_BODY_SECONDS", 0.3)
    kind = "application/x-www-form-urlencoded" if "token" in path else "application/json"
    head = f"POST {path} HTTP/1.1\nHost: localhost\nContent-Type: {kind}\nContent-Length: 1000000"
    async with Emulator(["contoso"], open=True) as emulator:
        started = asyncio.get_running_loop().time()
        await asyncio.gather(*(http(emulator["contoso"], head, b"x" * 100_000) for _ in range(20)))

    assert asyncio.get_running_loop().time() - started < 15
