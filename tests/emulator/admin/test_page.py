"""What the web page asks for: entities and messages, for this machine, or for who has the key."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import ClientSession
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from tests.emulator.support.authorizers import signed_headers

KEY = "a key of one's own"


async def ask(http: ClientSession, path: str, body: Mapping[str, object] | None = None) -> tuple[int, Any]:
    async with http.request("GET" if body is None else "POST", path, json=body) as response:
        return response.status, await response.json()


async def test_the_page_is_served_and_confined(http: ClientSession):
    for path, kind in (("/", "text/html"), ("/$page.js", "text/javascript")):
        async with http.get(path) as response:
            assert (response.status, response.content_type) == (200, kind)
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            assert "frame-ancestors 'none'" in response.headers["Content-Security-Policy"]
    # A queue may have a path of the page: requests of the administration API are told apart.
    async with http.get("/?api-version=2021-05") as response:
        assert response.status == 401


async def test_entities_are_listed_with_their_counts(hosted: HostedNamespace, http: ClientSession):
    hosted.namespace.create_topic(TopicDescription("delays"))
    hosted.namespace.create_subscription(SubscriptionDescription("delays", "long", requires_session=True))
    for body in ("one", "two"):
        assert await ask(http, "/$page/messages", {"entity": "flights", "body": body}) == (201, {})
    status, overview = await ask(http, "/$page/overview")
    assert (status, overview["namespace"]) == (200, "contoso")
    assert overview["namespaces"] == [{"name": "contoso", "port": hosted.admin_port}]
    shown = [(each["path"], each["kind"], each["sessions"], each["active"]) for each in overview["entities"]]
    assert shown == [
        ("flights", "queue", False, 2),
        ("delays", "topic", False, 0),
        ("delays/Subscriptions/long", "subscription", True, 0),
    ]


async def test_a_message_is_sent_shown_and_dead_lettered(hosted: HostedNamespace, http: ClientSession):
    sent = {
        "entity": "flights",
        "body": "hello",
        "message_id": "m1",
        "subject": "greeting",
        "content_type": "text/plain",
        "session_id": "s",
        "properties": {"minutes": 90, "late": True, "share": 0.5, "gate": "C4"},
    }
    assert await ask(http, "/$page/messages", sent) == (201, {})
    async with ServiceBusClient.from_connection_string(hosted.connection_string) as client:
        async with client.get_queue_sender("flights") as sender:
            odd: Any = {"share": float("nan"), "reason": "not ours"}
            await sender.send_messages(ServiceBusMessage(b"\xff" * 5000, application_properties=odd))
        _, document = await ask(http, "/$page/messages?entity=flights")
        shown, binary = document["messages"]
        for name in sent.keys() - {"entity"}:
            assert shown[name] == sent[name]
        assert (shown["state"], shown["sequence_number"], shown["delivery_count"]) == ("active", 1, 0)
        assert binary["body"].endswith("... (5000 bytes)")
        # JSON has no such number, and a browser would read nothing.
        assert binary["properties"] == {"share": "nan", "reason": "not ours"}
        assert await ask(http, "/$page/dead-letters", {"entity": "flights", "sequence_number": 1}) == (200, {})
        async with client.get_queue_receiver("flights", sub_queue="deadletter") as receiver:
            (message,) = await receiver.receive_messages(max_wait_time=5)
            assert (str(message), message.dead_letter_reason) == ("hello", "DeadLetteredByPage")
            kept = {b"minutes": 90, b"late": True, b"share": 0.5, b"gate": b"C4"}
            assert {name: message.application_properties[name] for name in kept} == kept
            _, document = await ask(http, "/$page/messages?entity=flights&queue=dead-letter")
            assert [each["state"] for each in document["messages"]] == ["locked"]


@pytest.mark.parametrize(
    ("path", "body", "status", "reason"),
    [
        ("/$page/messages?entity=missing", None, 404, "could not be found"),
        ("/$page/messages?entity=flights&queue=x", None, 400, "allowed: main"),
        ("/$page/messages?entity=flights&after=x", None, 400, "sequence number"),
        ("/$page/messages", {"body": "x"}, 400, "entity is None"),
        ("/$page/messages", {"entity": "flights", "body": 1}, 400, "body is 1"),
        ("/$page/messages", {"entity": "flights", "properties": {"a": []}}, 400, "properties"),
        ("/$page/messages", {"entity": "flights", "properties": {"a": 2**70}}, 400, "cannot be encoded"),
        ("/$page/messages", {"entity": "flights", "content_type": "é"}, 400, "cannot be encoded"),
        ("/$page/messages", {"entity": "flights", "body": "\ud800"}, 400, "cannot be encoded"),
        ("/$page/messages", {"entity": "flights", "body": "x" * 300_000}, 403, "allowed: "),
        ("/$page/dead-letters", {"entity": "flights", "sequence_number": 1}, 404, "no message"),
        ("/$page/dead-letters", {"entity": "flights", "sequence_number": "1"}, 400, "whole number"),
    ],
)
async def test_what_cannot_be_done_is_said(
    http: ClientSession, path: str, body: Mapping[str, object] | None, status: int, reason: str
):
    answered, document = await ask(http, path, body)
    assert answered == status
    assert reason in document["error"]


async def test_messages_need_the_key_where_there_is_one_of_its_own():
    async with Emulator(["contoso"], key=KEY) as emulator:
        hosted = emulator["contoso"]
        hosted.namespace.create_queue(QueueDescription("flights"))
        async with ClientSession(f"http://{hosted.host}:{hosted.admin_port}") as http:
            for headers, expected in (({}, 401), (signed_headers(), 401), (signed_headers(key=KEY), 200)):
                for path in ("/$page/overview", "/$page/messages?entity=flights"):
                    async with http.get(path, headers=headers) as response:
                        assert response.status == expected
