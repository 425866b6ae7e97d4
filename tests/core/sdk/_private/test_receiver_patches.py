"""A receiver without the private names works through the public API; partial settlement is reported per message."""

from __future__ import annotations

import asyncio
import logging
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Self

import pytest
from azure.servicebus import __version__

from servicebus_pair.core.sdk._private import capabilities, receiver_patches
from servicebus_pair.core.sdk._private.receiver_patches import (
    PartialSettlementError,
    can_settle_ranges,
    contiguous_ranges,
    decode_error,
    has_buffered_messages,
    patch_receiver,
    release_ranges,
    settle_range,
)
from tests.core.support.local_pair import BACKLOG, messages, open_local_pair

LINK = (*receiver_patches._OF_LINK, *receiver_patches._OF_SETTLEMENT)


@pytest.fixture(autouse=True)
def forget_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capabilities, "_warned", set())


class Receiver(SimpleNamespace):
    """The private attributes of the SDK's receiver that the patches use."""

    async def __aenter__(self) -> Self:
        return self


def receiver_without(missing: str) -> Receiver:
    def only(names: tuple[str, ...], **more: Any) -> SimpleNamespace:
        found = {**dict.fromkeys(names), **more}
        return SimpleNamespace(**{name: value for name, value in found.items() if name != missing})

    # Class attributes, as in the SDK: an instance attribute means that the link is patched already.
    link = type("Link", (), vars(only(LINK)))()
    names = ("_received_messages", "do_work_async", "settle_messages_async")
    handler = only(names, _link=link)
    return Receiver(_handler=handler) if missing != "_handler" else Receiver()


@pytest.mark.parametrize("missing", ["_handler", *receiver_patches._OF_HANDLER, *receiver_patches._OF_LINK])
async def test_a_receiver_that_cannot_be_patched_works_unpatched_and_warns_once(
    missing: str, caplog: pytest.LogCaptureFixture
) -> None:
    receiver: Any = receiver_without(missing)
    with caplog.at_level(logging.WARNING):
        await patch_receiver(receiver, should_stop=lambda: False, on_message_bytes=lambda _: None)
        await patch_receiver(receiver, should_stop=lambda: False, on_message_bytes=lambda _: None)
    (warning,) = caplog.messages
    assert __version__ in warning
    assert f".{missing}," in warning


async def test_without_the_message_class_the_receiver_is_not_patched_and_a_warning_is_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr("azure.servicebus._pyamqp.message.Message")
    receiver: Any = receiver_without("nothing")
    await patch_receiver(receiver, should_stop=lambda: False, on_message_bytes=lambda _: None)
    (warning,) = caplog.messages
    assert "_pyamqp.message.Message" in warning


@pytest.mark.parametrize("missing", ["settle_messages_async", "_link", *receiver_patches._OF_SETTLEMENT])
def test_messages_are_settled_one_by_one_where_ranges_cannot_be(missing: str) -> None:
    complete: Any = receiver_without("nothing")
    incomplete: Any = receiver_without(missing)
    message: Any = SimpleNamespace(_delivery_id=1, _delivery_tag=b"1")
    assert can_settle_ranges(complete, [message])
    assert not can_settle_ranges(incomplete, [message])


@pytest.mark.parametrize("missing", receiver_patches._OF_MESSAGE)
def test_messages_without_a_delivery_id_are_settled_one_by_one(missing: str) -> None:
    complete: Any = receiver_without("nothing")
    present = {name: 1 for name in receiver_patches._OF_MESSAGE if name != missing}
    message: Any = SimpleNamespace(**present)
    assert not can_settle_ranges(complete, [message])


async def test_a_backlog_is_drained_with_public_names_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receiver_patches, "first_missing_attribute", lambda _, names, **__: next(iter(names)))
    async with open_local_pair("flights") as both:
        await both.put_into_backlog("flights", messages(*range(40)))
        await both.put_into_backlog("gone", messages(1, name="x"))
        report = await both.pair.syphon().drain()
        assert (report.moved, report.dead_lettered) == ({"flights": 40}, {"EntityNotFound": 1})
        assert await both.primary_ids("flights") == [f"m{n}" for n in range(40)]
        assert await both.backlog_ids(BACKLOG) == []


def test_deliveries_are_split_where_an_id_is_missing() -> None:
    deliveries: Any = [SimpleNamespace(_delivery_id=number) for number in (7, 1, 3, 2)]
    assert [[each._delivery_id for each in part] for part in contiguous_ranges(deliveries)] == [[1, 2, 3], [7]]


async def test_a_range_that_fails_halfway_names_the_confirmed_messages() -> None:
    confirmed, refused = (SimpleNamespace(_delivery_id=number, _delivery_tag=number) for number in (1, 2))
    link = SimpleNamespace(_received_delivery_tags={1, 2}, _pending_dispositions={})

    async def settle(*_: Any, **__: Any) -> None:
        link._pending_dispositions.update({number: {"settled": False, "outcome": None} for number in (1, 2)})
        await asyncio.sleep(0)
        link._pending_dispositions[1].update(settled=True, outcome={"accepted": []})
        link._pending_dispositions.clear()  # as the SDK does
        raise OSError("detached")

    receiver: Any = SimpleNamespace(_handler=SimpleNamespace(_link=link, settle_messages_async=settle))
    both: Any = [confirmed, refused]
    with pytest.raises(PartialSettlementError) as caught:
        await settle_range(receiver, both, complete=True, timeout=5)
    assert caught.value.confirmed == {id(confirmed)}
    assert isinstance(caught.value.__cause__, OSError)
    assert link._received_delivery_tags == set()


def transfer_frame(payload: bytes, *, more: bool = False) -> tuple[Any, ...]:
    return (*(None for _ in range(5)), more, *(None for _ in range(5)), payload)


class FakeLink:
    """A link of the SDK that raises ``failure`` for an incoming transfer, and records what it delivers."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.delivered: list[tuple[Any, Any]] = []

    _received_payload = bytearray(b"12")
    _first_frame = "first"
    _on_transfer: Any = None

    async def _incoming_transfer(self, frame: Any) -> None:
        if self.failure is not None:
            raise self.failure
        await self._on_transfer(frame, "message")

    async def _process_incoming_message(self, frame: Any, message: Any) -> None:
        self.delivered.append((frame, message))


async def patched_link() -> tuple[FakeLink, Any, list[int]]:
    link, sizes = FakeLink(), list[int]()
    handler = SimpleNamespace(_link=link, _received_messages=SimpleQueue(), do_work_async=None)
    receiver: Any = Receiver(_handler=handler)
    await patch_receiver(receiver, should_stop=lambda: False, on_message_bytes=sizes.append)
    return link, receiver, sizes


async def test_a_message_between_two_receives_is_buffered_and_its_size_reported_once() -> None:
    link, receiver, sizes = await patched_link()
    assert not has_buffered_messages(receiver)
    for more in (True, False):
        await link._incoming_transfer(transfer_frame(b"345", more=more))
    assert (sizes, has_buffered_messages(receiver)) == ([5], True)
    assert receiver._handler._received_messages.get()[1] == "message"


async def test_a_message_that_cannot_be_decoded_is_delivered_as_a_placeholder() -> None:
    link, _, _ = await patched_link()
    link.failure = ValueError("bad decimal")
    await link._incoming_transfer(transfer_frame(b"345"))
    [(frame, placeholder)] = link.delivered
    assert (frame, link._received_payload) == ("first", bytearray())
    received: Any = SimpleNamespace(_message=placeholder)
    ordinary: Any = SimpleNamespace(_message=SimpleNamespace())
    assert (decode_error(received), decode_error(ordinary)) == ("ValueError: bad decimal", None)
    for failure in (OSError("lost"), AttributeError("a race")):
        link.failure = failure
        with pytest.raises(type(failure)):
            await link._incoming_transfer(transfer_frame(b"345"))


@pytest.mark.parametrize(
    ("stop", "worked", "result"), [(False, True, True), (False, False, False), (True, True, False)]
)
async def test_a_waiting_receive_ends_once_it_should_stop(stop: bool, worked: bool, result: bool) -> None:
    async def work(**options: Any) -> bool:
        assert options == {"batch": 1}
        return worked

    # A class attribute, as in the SDK: an instance attribute means that the handler is patched already.
    handler: Any = type("Handler", (), {"do_work_async": staticmethod(work)})()
    handler._link, handler._received_messages = FakeLink(), SimpleQueue()
    receiver: Any = Receiver(_handler=handler)
    await patch_receiver(receiver, should_stop=lambda: stop, on_message_bytes=lambda _: None)
    assert await handler.do_work_async(batch=1) is result


@pytest.mark.parametrize(
    ("complete", "outcome", "details"),
    [(True, "accepted", {}), (False, "modified", {"delivery_failed": True, "undeliverable_here": False})],
)
async def test_a_range_is_settled_with_one_disposition(complete: bool, outcome: str, details: dict[str, bool]) -> None:
    calls: list[Any] = []

    async def settle(*given: Any, **options: Any) -> None:
        calls.append((given, options))

    link = SimpleNamespace(_received_delivery_tags={4, 5, 6, 7}, _pending_dispositions={})
    receiver: Any = SimpleNamespace(_handler=SimpleNamespace(_link=link, settle_messages_async=settle))
    deliveries: Any = [SimpleNamespace(_delivery_id=number, _delivery_tag=number) for number in (4, 5, 6)]
    await settle_range(receiver, deliveries, complete=complete, timeout=5)
    options = {"batchable": True, "await_outcome": True, "outcome_timeout": 5, **details}
    assert (calls, link._received_delivery_tags) == ([(((4, 6), 6, outcome), options)], {7})
    with pytest.raises(OSError, match="the link that delivered the messages is gone"):
        await settle_range(receiver, deliveries, complete=complete, timeout=5)


async def test_messages_are_released_by_ranges_after_the_credit_is_drained() -> None:
    calls: list[Any] = []

    async def call(*given: Any, **options: Any) -> None:
        calls.append((*given, *options))

    handler = SimpleNamespace(settle_messages_async=call)
    transport = SimpleNamespace(drain_and_release_messages_async=call)
    receiver: Any = SimpleNamespace(_handler=handler, _amqp_transport=transport)
    deliveries: Any = [SimpleNamespace(_delivery_id=number, _delivery_tag=number) for number in (1, 2, 5)]
    await release_ranges(receiver, deliveries)
    assert calls == [(handler,), ((1, 2), 2, "released", "batchable"), ((5, 5), 5, "released", "batchable")]
