"""On the fast path messages are buffered, settled in ranges, and replaced where they cannot be decoded."""

from __future__ import annotations

import asyncio
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, Self

import pytest

from servicebus_pair.core.sdk._private.receiver_patches import (
    PartialSettlementError,
    Settlement,
    can_settle_ranges,
    contiguous_ranges,
    decode_error,
    has_buffered_messages,
    patch_receiver,
    release_ranges,
    settle_range,
)

pytestmark = pytest.mark.fast_sdk


class Receiver(SimpleNamespace):
    """The private attributes of the SDK's receiver that the patches use."""

    async def __aenter__(self) -> Self:
        return self


def test_ranges_are_settled_over_an_open_link_only() -> None:
    receiver: Any = Receiver(_handler=SimpleNamespace(_link=object()))
    assert can_settle_ranges(receiver)
    receiver._handler._link = None
    assert not can_settle_ranges(receiver)


async def test_a_receiver_without_a_link_is_not_patched() -> None:
    receiver: Any = Receiver(_handler=SimpleNamespace(_link=None))
    await patch_receiver(receiver, should_stop=lambda: False, on_message_bytes=lambda _: None)
    assert vars(receiver._handler) == {"_link": None}


def test_deliveries_are_split_where_an_id_is_missing() -> None:
    deliveries: Any = [SimpleNamespace(_delivery_id=number) for number in (7, 1, 3, 2)]
    assert [[each._delivery_id for each in part] for part in contiguous_ranges(deliveries)] == [[1, 2, 3], [7]]


async def test_a_range_that_fails_halfway_names_the_confirmed_messages() -> None:
    # The first is confirmed; then a refused one, two without an end or an outcome, and one that was never pending.
    answers: list[Any] = [(True, {"accepted": []}), (True, {"rejected": []}), (False, {"accepted": []}), (True, None)]
    all_of_them: Any = [SimpleNamespace(_delivery_id=number, _delivery_tag=number) for number in range(5)]
    link = SimpleNamespace(_received_delivery_tags=set(range(5)), _pending_dispositions={})

    async def settle(*_: Any, **__: Any) -> None:
        link._pending_dispositions.update({number: {"settled": False, "outcome": None} for number in range(4)})
        await asyncio.sleep(0)
        for number, (settled, outcome) in enumerate(answers):
            link._pending_dispositions[number].update(settled=settled, outcome=outcome)
        link._pending_dispositions.clear()  # as the SDK does
        raise OSError("detached")

    receiver: Any = SimpleNamespace(_handler=SimpleNamespace(_link=link, settle_messages_async=settle))
    with pytest.raises(PartialSettlementError) as caught:
        await settle_range(receiver, all_of_them, "complete", timeout=5)
    assert caught.value.confirmed == {id(all_of_them[0])}
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
    for payload, more in ((b"a part", True), (b"345", False)):
        await link._incoming_transfer(transfer_frame(payload, more=more))
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
    ("settlement", "outcome", "details"),
    [
        ("complete", "accepted", {}),
        ("abandon", "modified", {"delivery_failed": True, "undeliverable_here": False}),
        ("defer", "modified", {"delivery_failed": True, "undeliverable_here": True}),
    ],
)
async def test_a_range_is_settled_with_one_disposition(
    settlement: Settlement, outcome: str, details: dict[str, bool]
) -> None:
    calls: list[Any] = []

    async def settle(*given: Any, **options: Any) -> None:
        calls.append((given, options))

    link = SimpleNamespace(_received_delivery_tags={4, 5, 6, 7}, _pending_dispositions={})
    receiver: Any = SimpleNamespace(_handler=SimpleNamespace(_link=link, settle_messages_async=settle))
    deliveries: Any = [SimpleNamespace(_delivery_id=number, _delivery_tag=number) for number in (4, 5, 6)]
    await settle_range(receiver, deliveries, settlement, timeout=5)
    options = {"batchable": True, "await_outcome": True, "outcome_timeout": 5, **details}
    assert (calls, link._received_delivery_tags) == ([(((4, 6), 6, outcome), options)], {7})
    with pytest.raises(OSError, match="the link that delivered the messages is gone"):
        await settle_range(receiver, deliveries, settlement, timeout=5)


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
