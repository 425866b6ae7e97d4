"""On the fast path a single message is encoded once, and arrives as one sent through the public interface."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus._pyamqp._decode import decode_frame
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._pyamqp.constants import SessionState

from servicebus_pair.core.sdk import send_link
from servicebus_pair.core.sdk._private import capabilities
from servicebus_pair.core.sdk._private.message_encoding import EncodedMessage
from servicebus_pair.core.sdk._private.sender_patches import limit_settlements, patch_sender
from tests.core.support.local_pair import LocalPair, numbered
from tests.core.support.queues import peek_all

pytestmark = [pytest.mark.simulated, pytest.mark.fast_sdk]

# More than a frame of the SDK, and than one of the emulator.
TWO_FRAMES = 150_000
RECEIVED_FIELDS = [
    "message_id",
    "session_id",
    "subject",
    "content_type",
    "correlation_id",
    "reply_to",
    "to",
    "time_to_live",
    "application_properties",
]


@pytest.fixture(autouse=True)
def encoded(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Ids of the messages that the SDK encodes itself; its own requests are not counted."""
    seen: list[Any] = []

    def encode(output: bytearray, message: Any) -> Any:
        if message.data is not None:
            seen.append(message.properties.message_id)
        return encode_payload(output, message)

    monkeypatch.setattr("azure.servicebus._pyamqp.aio._sender_async.encode_payload", encode)
    return seen


def message_with_all_properties() -> ServiceBusMessage:
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


async def test_a_single_message_is_encoded_once_and_equals_one_sent_publicly(
    local_pair: LocalPair, encoded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(message_with_all_properties())
    assert encoded == []
    monkeypatch.setattr(send_link, "fast_path", lambda: False)
    sender._link._discard()
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(message_with_all_properties())
    assert encoded == ["rich"]
    ours, theirs = await peek_all(local_pair.primary.connection_string, "flights")
    fields: list[Callable[[Any], Any]] = [str, *map(attrgetter, RECEIVED_FIELDS)]
    assert [field(ours) for field in fields] == [field(theirs) for field in fields]


async def test_single_messages_beyond_the_link_credit_arrive_in_order(
    local_pair: LocalPair, encoded: list[Any]
) -> None:
    async with local_pair.pair.sender("flights") as sender:
        for message in numbered(450):
            await sender.send(message)
    assert encoded == []
    assert await local_pair.primary_ids() == [f"m{n}" for n in range(450)]


async def test_a_message_of_several_frames_is_sent_by_the_sdk(local_pair: LocalPair, encoded: list[Any]) -> None:
    body = bytes(range(250)) * (TWO_FRAMES // 250)
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(ServiceBusMessage(body, message_id="large"))
    assert encoded == ["large"]
    (arrived,) = await peek_all(local_pair.primary.connection_string, "flights")
    assert b"".join(arrived.body) == body


async def test_with_tracing_on_the_sdk_encodes_the_message(
    local_pair: LocalPair, encoded: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capabilities, "settings", SimpleNamespace(tracing_implementation=lambda: object))
    async with local_pair.pair.sender("flights") as sender:
        await sender.send(message_with_all_properties())
    assert encoded == ["rich"]


class FakeTransfers:
    """A patched link with its session; records frames of the patch and messages left to the SDK."""

    def __init__(self) -> None:
        self.frames: list[Any] = []
        self.left_to_sdk: list[Any] = []
        # Class attributes, as in the SDK: an instance attribute means that the object is patched already.
        self.transport = type("Transport", (), {"send_frame": None, "write": staticmethod(self._write)})()
        connection = SimpleNamespace(
            _process_outgoing_frame=self._process,
            _remote_max_frame_size=300,
            _transport=self.transport,
        )
        self.session = SimpleNamespace(_connection=connection)
        self.link = type("Link", (), {"_outgoing_transfer": staticmethod(self._transfer_of_the_sdk)})()
        self.link._session, self.link.network_trace = self.session, False
        sender: Any = SimpleNamespace(_handler=SimpleNamespace(_link=self.link))
        self.session.channel, self.session.state, self.session.next_outgoing_id = 3, SessionState.MAPPED, 9
        self.session.remote_incoming_window = self.session.outgoing_window = self.link.current_link_credit = 10
        self.link.handle, self.link.delivery_count = 0, 4
        patch_sender(sender)
        patched = self.link._outgoing_transfer
        patch_sender(sender)
        assert self.link._outgoing_transfer is patched

    async def _process(self, channel: int, frame: Any) -> None:
        await self.transport.send_frame(channel, frame)

    async def _write(self, data: bytes) -> None:
        assert int.from_bytes(data[:4], "big") == len(data)
        frame = decode_frame(memoryview(data)[8:])[1]
        assert (frame[0], frame[3]) == (self.link.handle, 0)
        channel = int.from_bytes(data[6:8], "big")
        self.frames.append((channel, frame[1], frame[2], frame[4], frame[5], frame[11]))

    async def _transfer_of_the_sdk(self, delivery: Any) -> None:
        self.left_to_sdk.append(delivery.message)

    async def send(self, size: int = 44, *, settled: bool = False) -> Any:
        message = EncodedMessage()
        message.encoded = bytearray(size)
        delivery = SimpleNamespace(message=message, settled=settled)
        assert not await self.link._outgoing_transfer(delivery)
        return delivery


async def test_a_transfer_counts_deliveries_and_uses_the_frame_limit_of_the_peer() -> None:
    transfers = FakeTransfers()
    deliveries = [await transfers.send(size) for size in (44, 44, 45)]
    assert transfers.frames == [
        (3, 9, b"\0\0\0\5", False, False, bytes(44)),
        (3, 10, b"\0\0\0\6", False, False, bytes(44)),
    ]
    assert [len(each.encoded) for each in transfers.left_to_sdk] == [45]
    link, session = transfers.link, transfers.session
    assert (link.delivery_count, link.current_link_credit, session.outgoing_window) == (6, 8, 8)
    assert (session.next_outgoing_id, session.remote_incoming_window) == (11, 8)
    assert (deliveries[1].frame, deliveries[1].sent) == ({"delivery_id": 10}, True)


@pytest.mark.parametrize("reason", ["session", "window", "overdrawn", "settled", "trace"])
async def test_a_transfer_that_the_patch_does_not_cover_is_left_to_the_sdk(reason: str) -> None:
    transfers = FakeTransfers()
    if reason == "session":
        transfers.session.state = SessionState.END_SENT
    if reason in ("window", "overdrawn"):
        transfers.session.remote_incoming_window = 0 if reason == "window" else -1
    transfers.link.network_trace = reason == "trace"
    await transfers.send(settled=reason == "settled")
    assert (transfers.frames, len(transfers.left_to_sdk)) == ([], 1)
    if reason == "window":
        transfers.session.remote_incoming_window = 1
        await transfers.send()
        assert len(transfers.frames) == 1


@pytest.mark.parametrize(
    ("first", "last", "settled"),
    [
        (7, None, {7}),
        (7, 7, {7}),
        (6, 7, {6, 7}),
        (0, 6, {6}),
        (8, 7, set()),
        (8, 2**16 + 7, set()),
        (2**32 - 1, None, set()),
        # The SDK would list 32 GB of ids.
        (0, 2**32 - 1, {6, 7}),
    ],
)
async def test_a_settlement_is_of_what_was_sent(first: int, last: int | None, settled: set[int]) -> None:
    assert await settled_by(first, last) == settled


async def settled_by(first: int, last: int | None) -> set[int]:
    """Return which of two deliveries, 6 and 7, the frame of a service settles."""
    limit_settlements()
    from azure.servicebus._pyamqp.aio._sender_async import SenderLink

    settled: set[int] = set()

    async def settle(number: int, *_: object) -> None:
        settled.add(number)

    link: Any = SimpleNamespace(
        _pending_deliveries=[
            *(
                SimpleNamespace(sent=True, frame={"delivery_id": each}, on_settled=partial(settle, each))
                for each in (6, 7)
            ),
            SimpleNamespace(sent=False),
        ]
    )
    receive: Any = SenderLink._incoming_disposition
    await receive(link, (True, first, last, True, None))
    return settled
