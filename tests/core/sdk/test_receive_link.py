"""A receive link reports the outcome of each settled message, and closing a broken handler raises nothing."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Self

import pytest
from azure.servicebus.amqp import AmqpMessageBodyType

from servicebus_pair.core.model.errors import (
    LockLostError,
    ServiceError,
    ServiceFaultError,
    TimedOutError,
    UnreachableError,
)
from servicebus_pair.core.model.pricing import Operations
from servicebus_pair.core.model.usage_meter import Meter
from servicebus_pair.core.sdk import receive_link
from servicebus_pair.core.sdk._private.receiver_patches import PartialSettlementError
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.sdk.receive_link import ReceiveLink
from servicebus_pair.core.sdk.received_message import ReceivedMessage


class Owner(NamespaceClient):
    def __init__(self) -> None:
        self.namespace, self.meter, self.authenticated = "contoso", Meter(), True
        self.is_closed, self._fault, self._background = False, None, set()


def received(*inner: Any) -> list[ReceivedMessage]:
    return [ReceivedMessage(each) for each in inner]


def link_over(receiver: Any) -> tuple[ReceiveLink, Owner]:
    owner = Owner()
    link = ReceiveLink(owner, "flights", lambda: receiver, should_stop=lambda: False)
    link._handler = receiver
    return link, owner


@pytest.mark.fast_sdk
async def test_only_unconfirmed_messages_of_a_partly_settled_range_have_a_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    confirmed, other = (SimpleNamespace(_delivery_id=number) for number in (1, 2))

    async def settle_range(*_: Any, **__: Any) -> None:
        raise PartialSettlementError(frozenset([id(confirmed)])) from OSError("detached")

    monkeypatch.setattr(receive_link, "can_settle_ranges", lambda *_: True)
    monkeypatch.setattr(receive_link, "settle_range", settle_range)
    link, owner = link_over(SimpleNamespace())
    first, second = await link.complete(received(confirmed, other), timeout=5)
    assert (first, type(second)) == (None, UnreachableError)
    assert "settle on flights on contoso: OSError: detached" in str(second)
    assert owner.meter.read().settlements == 2


async def test_messages_are_settled_one_by_one_and_a_failure_does_not_stop_the_others() -> None:
    settled = []

    async def complete_message(message: Any) -> None:
        if message == "b":
            raise LockLostError
        settled.append(message)

    link, _ = link_over(SimpleNamespace(complete_message=complete_message))
    outcomes = await link.complete(received("a", "b", "c"), timeout=5)
    assert settled == ["a", "c"]
    assert [outcome is None for outcome in outcomes] == [True, False, True]


async def test_closing_a_broken_handler_raises_nothing_and_the_next_call_creates_another() -> None:
    async def close() -> None:
        raise OSError("broken")

    async def peek_messages(**options: Any) -> list[Any]:
        return [SimpleNamespace(**options)]

    link, _ = link_over(SimpleNamespace(close=close))
    await link.close()
    link._create_handler = lambda: SimpleNamespace(peek_messages=peek_messages)
    peeked: list[Any] = [each.sdk_message for each in await link.peek(max_messages=2, timeout=5)]
    assert peeked == [SimpleNamespace(max_message_count=2, sequence_number=1, timeout=5)]


def link_that_peeks(*numbers: int) -> ReceiveLink:
    async def peek_messages(**_: Any) -> list[Any]:
        return [SimpleNamespace(sequence_number=each) for each in numbers]

    return link_over(SimpleNamespace(peek_messages=peek_messages))[0]


@pytest.mark.parametrize("numbers", [[0], [3, 4], [4, 3], [-9, 4], [2**63 - 1], [5, 2**64]])
async def test_messages_from_before_the_one_that_was_asked_for_are_an_error_of_the_service(numbers: list[int]) -> None:
    """A service that repeats them would be read without end."""
    with pytest.raises(
        ServiceFaultError,
        match=f"peek at flights on contoso: from sequence number 5 on it returned {max(numbers)} at most",
    ):
        await link_that_peeks(*numbers).peek(max_messages=2, timeout=5, from_sequence_number=5)


async def test_peeked_messages_are_in_ascending_order() -> None:
    for given, expected in (([7, 5, 6], [5, 6, 7]), ([5], [5]), ([2**63 - 2, 3], [3, 2**63 - 2]), ([], [])):
        peeked = await link_that_peeks(*given).peek(max_messages=3, timeout=5, from_sequence_number=5)
        assert [each.sequence_number for each in peeked] == expected


class FakeReceiver:
    """A receiver of the SDK that returns ``messages``, and records its calls."""

    def __init__(self, *messages: Any, buffered: bool = False) -> None:
        self.messages = list(messages)
        self.waits: list[tuple[int, float]] = []
        self.running = self.most_running = 0
        self._handler = SimpleNamespace(_link=None, _received_messages=SimpleNamespace(empty=lambda: not buffered))

    async def __aenter__(self) -> Self:
        return self

    async def receive_messages(self, *, max_message_count: int, max_wait_time: float) -> list[Any]:
        self.waits.append((max_message_count, max_wait_time))
        return self.messages

    async def abandon_message(self, message: Any) -> None:
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        await asyncio.sleep(message)
        self.running -= 1


@pytest.mark.fast_sdk
@pytest.mark.parametrize(("buffered", "wait", "used"), [(False, 60, 60), (True, 60, 0.2), (True, 0.1, 0.1)])
async def test_a_receive_waits_briefly_if_messages_are_buffered(buffered: bool, wait: float, used: float) -> None:
    receiver = FakeReceiver("a", "b", buffered=buffered)
    link, owner = link_over(receiver)
    assert not link.fell_silent
    found = await link.receive(max_messages=5, max_wait_time=wait, timeout=2)
    assert [each.sdk_message for each in found] == ["a", "b"]
    assert receiver.waits == [(5, used)]
    assert owner.meter.read() == Operations(receives=2)


async def test_a_receive_that_fails_or_finds_nothing_is_counted() -> None:
    for receiver in (FakeReceiver(), SimpleNamespace()):
        link, owner = link_over(receiver)
        with suppress(ServiceError):
            assert await link.receive(max_messages=1, max_wait_time=1, timeout=2) == []
        assert owner.meter.read() == Operations(empty_receives=1)


@pytest.mark.fast_sdk
async def test_a_receive_that_should_stop_releases_its_messages() -> None:
    link, owner = link_over(FakeReceiver(0, 0, 0))
    link._should_stop = lambda: True
    assert await link.receive(max_messages=5, max_wait_time=1, timeout=2) == []
    assert owner.meter.read() == Operations(receives=3, settlements=3)


@pytest.mark.simulated
@pytest.mark.usefixtures("public_sdk")
async def test_a_public_receive_waits_in_steps_and_ends_soon_after_it_should_stop() -> None:
    clock = asyncio.get_running_loop().time
    waits: list[float] = []

    async def receive_messages(*, max_message_count: int, max_wait_time: float) -> list[Any]:
        assert max_message_count == 5
        waits.append(max_wait_time)
        await asyncio.sleep(max_wait_time)
        return []

    receiver = FakeReceiver()
    receiver.receive_messages = receive_messages  # type: ignore[method-assign]
    link, owner = link_over(receiver)
    assert await link.receive(max_messages=5, max_wait_time=1.1, timeout=2) == []
    assert (len(waits), sum(waits)) == (5, pytest.approx(1.1))
    stop_at = clock() + 60
    link._should_stop = lambda: clock() >= stop_at
    assert await link.receive(max_messages=5, max_wait_time=900, timeout=2) == []
    assert stop_at <= clock() <= stop_at + 0.5
    assert owner.meter.read() == Operations(empty_receives=2)


@pytest.mark.usefixtures("public_sdk")
async def test_a_public_receive_counts_increments_by_the_body() -> None:
    large = SimpleNamespace(body_type=AmqpMessageBodyType.DATA, body=iter([b"x" * 70_000, b"x" * 70_000]))
    other = SimpleNamespace(body_type=AmqpMessageBodyType.VALUE, body=5)
    link, owner = link_over(FakeReceiver(large, other))
    found = await link.receive(max_messages=5, max_wait_time=1, timeout=2)
    assert [each.sdk_message for each in found] == [large, other]
    assert owner.meter.read() == Operations(receives=2, further_increments=2)


@pytest.mark.usefixtures("public_sdk")
async def test_without_private_names_credit_is_left_to_the_end_of_the_link() -> None:
    link, _ = link_over(SimpleNamespace())
    await link.drain_credit(timeout=2)


@pytest.mark.simulated
async def test_32_messages_are_settled_at_a_time_and_slow_ones_time_out() -> None:
    receiver = FakeReceiver()
    link, _ = link_over(receiver)
    started = asyncio.get_running_loop().time()
    seconds: list[Any] = [1.0 + n / 1000 for n in range(70)]
    outcomes = await link.abandon(received(*seconds), timeout=2)
    assert (receiver.most_running, outcomes) == (32, [None] * 70)
    assert asyncio.get_running_loop().time() - started == pytest.approx(3, abs=0.3)
    late: list[Any] = [0.5, 60]
    assert [type(outcome) for outcome in await link.abandon(received(*late), timeout=2)] == [type(None), TimedOutError]


@pytest.mark.simulated
@pytest.mark.parametrize(("count", "seconds"), [(1, 2.4), (31, 2.4), (32, 4.4), (64, 6.4)])
async def test_settlements_are_bounded_as_a_whole(count: int, seconds: float) -> None:
    async def hang(*_: Any) -> None:
        while True:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(3600)
                return

    link, _ = link_over(SimpleNamespace(complete_message=hang))
    started = asyncio.get_running_loop().time()
    outcomes = await link.complete(received(*range(count)), timeout=2)
    assert asyncio.get_running_loop().time() - started == pytest.approx(seconds, abs=0.3)
    assert {type(outcome) for outcome in outcomes} == {TimedOutError}


@pytest.mark.fast_sdk
async def test_deferred_messages_are_removed_together_on_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[Any] = []

    async def remove(_: Any, numbers: list[int], *, timeout: float) -> None:
        removed.append((numbers, timeout))

    monkeypatch.setattr(receive_link, "remove_deferred", remove)
    link, owner = link_over(SimpleNamespace())
    assert await link.remove_deferred([3, 5], timeout=2)
    assert (removed, owner.meter.read()) == ([([3, 5], 2)], Operations(receives=2))


@pytest.mark.fast_sdk
async def test_credit_is_only_drained_on_an_open_link() -> None:
    drained: list[Any] = []

    async def drain(handler: Any) -> None:
        drained.append(handler)

    transport = SimpleNamespace(drain_and_release_messages_async=drain)
    link, _ = link_over(SimpleNamespace(_handler="handler", _amqp_transport=transport))
    await link.drain_credit(timeout=2)
    assert drained == ["handler"]
    link._handler = None
    await link.drain_credit(timeout=2)
    assert drained == ["handler"]
