"""A message that is sent alone is encoded once; without the SDK's inside, the public way is taken and says so."""

from __future__ import annotations

import logging
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, __version__
from azure.servicebus._pyamqp._encode import encode_payload

from servicebus_pair.core import handing_over, sdk_names
from servicebus_pair.core.handing_over import takes_encoded
from tests.core.breakable import Breakable, numbered
from tests.core.peeking import peek_all

pytestmark = pytest.mark.simulated

# More than a frame of the SDK, and more than a frame of the service at hand.
TWO_FRAMES = 150_000


@pytest.fixture(autouse=True)
def nothing_said_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk_names, "_said", set())


@pytest.fixture(autouse=True)
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The ids of the messages that the SDK's links encode themselves, but for the requests of its own."""
    seen: list[Any] = []

    def encode(output: bytearray, message: Any) -> Any:
        if message.data is not None:
            seen.append(message.properties.message_id)
        return encode_payload(output, message)

    monkeypatch.setattr("azure.servicebus._pyamqp.aio._sender_async.encode_payload", encode)
    return seen


def rich() -> ServiceBusMessage:
    return ServiceBusMessage(
        "body é",
        message_id="rich",
        session_id="s",
        subject="subject",
        content_type="text/plain",
        correlation_id="c",
        reply_to="answers",
        to="somewhere",
        time_to_live=timedelta(hours=1),
        application_properties={"text": "value", "number": 5, "yes": True},
    )


def told(message: ServiceBusReceivedMessage) -> tuple[Any, ...]:
    """What a receiver learns of a message that was sent by either way."""
    return (
        str(message),
        message.message_id,
        message.session_id,
        message.subject,
        message.content_type,
        message.correlation_id,
        message.reply_to,
        message.to,
        message.time_to_live,
        message.application_properties,
    )


async def test_a_single_message_is_encoded_once_and_arrives_as_by_the_public_way(
    breakable: Breakable, encoded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(rich())
    assert encoded == []
    monkeypatch.setattr(handing_over, "absent", lambda _, names, **__: next(iter(names)))
    sender._link._discard()
    async with breakable.pair.sender("flights") as sender:
        await sender.send(rich())
    assert encoded == ["rich"]
    ours, theirs = await peek_all(breakable.primary.connection_string, "flights")
    assert told(ours) == told(theirs)


async def test_single_messages_beyond_the_credit_of_a_link_all_arrive_in_order(
    breakable: Breakable, encoded: list[Any]
) -> None:
    async with breakable.pair.sender("flights") as sender:
        for message in numbered(450):
            await sender.send(message)
    assert encoded == []
    assert await breakable.ids_on_the_primary() == [f"m{n}" for n in range(450)]


async def test_single_messages_batches_and_pings_share_a_link(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1)[0])
        await sender.send(numbered(5, start=1))
        await sender.send(numbered(1, start=6)[0])
    assert await breakable.ids_on_the_primary() == [f"m{n}" for n in range(7)]


async def test_a_message_of_several_frames_goes_the_way_of_the_sdk(breakable: Breakable, encoded: list[Any]) -> None:
    body = bytes(range(250)) * (TWO_FRAMES // 250)
    async with breakable.pair.sender("flights") as sender:
        await sender.send(ServiceBusMessage(body, message_id="large"))
    assert encoded == ["large"]
    (arrived,) = await peek_all(breakable.primary.connection_string, "flights")
    assert b"".join(arrived.body) == body


async def test_a_diverted_single_message_is_encoded_once_too(breakable: Breakable, encoded: list[Any]) -> None:
    breakable.pair.fail_over("flights", reason="test")
    async with breakable.pair.sender("flights") as sender:
        assert (await sender.send(rich())).diverted == 1
    assert encoded == []
    assert await breakable.ids_in_the_backlog() == ["rich"]


async def test_while_tracing_is_on_the_sdk_encodes_what_it_adds(
    breakable: Breakable, encoded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing_over, "settings", SimpleNamespace(tracing_implementation=lambda: object))
    async with breakable.pair.sender("flights") as sender:
        await sender.send(rich())
    assert encoded == ["rich"]


def sender_without(missing: str) -> Any:
    """A sender of the SDK, as far as its inside is used."""

    def only(names: tuple[str, ...], **more: Any) -> dict[str, Any]:
        return {name: value for name, value in {**dict.fromkeys(names), **more}.items() if name != missing}

    connection = SimpleNamespace(**only(handing_over._OF_CONNECTION))
    session = SimpleNamespace(**only(handing_over._OF_SESSION, _connection=connection))
    # Of the class, as the SDK's are: a link that has its own takes encoded messages already.
    link = type("Link", (), only(handing_over._OF_LINK, _session=session))()
    return SimpleNamespace(**only(handing_over._OF_SENDER, _handler=SimpleNamespace(**only((), _link=link))))


@pytest.mark.parametrize(
    "missing",
    [
        *handing_over._OF_SENDER,
        "_link",
        *handing_over._OF_LINK,
        *handing_over._OF_SESSION,
        *handing_over._OF_CONNECTION,
    ],
)
def test_a_sender_without_the_inside_is_used_as_it_is_and_the_log_says_so_once(
    missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    assert takes_encoded(sender_without("nothing"))
    with caplog.at_level(logging.WARNING):
        assert not takes_encoded(sender_without(missing))
        assert not takes_encoded(sender_without(missing))
    (said,) = caplog.messages
    assert __version__ in said
    assert f".{missing}," in said


@pytest.mark.parametrize(("module", "name"), [("performatives", "TransferFrame"), ("constants", "SessionState")])
def test_without_the_form_of_a_transfer_the_public_way_is_taken(
    module: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(f"azure.servicebus._pyamqp.{module}.{name}")
    assert not takes_encoded(sender_without("nothing"))
