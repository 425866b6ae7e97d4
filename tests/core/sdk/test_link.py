"""A link bounds its calls, and replaces its handler after a failure that the SDK's link does not survive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from datetime import UTC, datetime
from functools import partial
from math import inf
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus import exceptions as sdk

from servicebus_pair.core.model.errors import (
    InvalidMessageError,
    PairClosedError,
    ServerBusyError,
    ServiceError,
    ServiceFaultError,
)
from servicebus_pair.core.model.pricing import Operations
from servicebus_pair.core.model.usage_meter import Meter, Operation
from servicebus_pair.core.sdk.idle_links import IdleLinks
from servicebus_pair.core.sdk.link import Link, close_quietly
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.sdk.receive_link import ReceiveLink
from servicebus_pair.core.sdk.send_link import SendLink, SendSlot

# The fake senders have the SDK's public methods only.
pytestmark = [pytest.mark.simulated, pytest.mark.usefixtures("public_sdk")]


class Owner:
    """A client that records what its links ask for."""

    namespace = "contoso"

    def __init__(self) -> None:
        self.send_operation = Operation.SEND
        self.idle_links = IdleLinks("contoso", 100)
        self.authenticated, self.meter, self.is_closed = False, Meter(), False
        self.bounds: list[float] = []
        self.discarded: list[Any] = []

    def check_open(self) -> None:
        if self.is_closed:
            raise PairClosedError("closed")

    async def run_bounded(self, call: Awaitable[Any], seconds: float) -> Any:
        self.bounds.append(seconds)
        return await call

    async def explain_auth_failure(self, error: ServiceError, path: str, *, timeout: float) -> ServiceError:
        return type(error)(f"{path} within {timeout:.0f} s: {error}")

    def close_soon(self, handler: Any) -> None:
        self.discarded.append(handler)


def link_of(owner: Owner) -> Link:
    return Link(owner, "flights", SimpleNamespace)


async def fail(error: BaseException) -> None:
    raise error


async def test_a_call_has_an_outer_time_limit_and_keeps_its_handler() -> None:
    owner = Owner()
    link = link_of(owner)
    first = await link._call("open", lambda handler: asyncio.sleep(0, handler), timeout=5)
    assert (owner.bounds, owner.authenticated) == ([5.4], True)
    assert await link._call("open", lambda handler: asyncio.sleep(0, handler), timeout=5) is first
    assert (owner.discarded, link.attached) == ([], True)


async def test_a_link_that_was_never_used_is_unused_for_ever() -> None:
    link = link_of(Owner())
    assert (link.seconds_unused(), link.attached) == (inf, False)


async def test_a_call_on_an_open_link_is_cancelled_at_its_limit() -> None:
    owner = Owner()
    started = asyncio.get_running_loop().time()
    with pytest.raises(ServiceError, match="send to flights on contoso: TimeoutError"):
        await link_of(owner)._attempt("send to", lambda _: asyncio.sleep(60), timeout=1, is_open=True)
    assert asyncio.get_running_loop().time() - started == pytest.approx(1.4, abs=0.1)
    assert (owner.bounds, len(owner.discarded), owner.authenticated) == ([], 1, False)


@pytest.mark.parametrize(
    ("failure", "survives"),
    [
        (ValueError("argument"), True),
        (sdk.MessageLockLostError(), True),
        (sdk.MessageSizeExceededError(), True),
        (sdk.ServiceBusQuotaExceededError(), True),
        (sdk.ServiceBusServerBusyError(), True),
        (sdk.ServiceBusConnectionError(), False),
        (sdk.MessagingEntityNotFoundError(), False),
        (RuntimeError("race"), False),
        (asyncio.CancelledError(), False),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_a_failed_link_is_replaced_unless_it_survives(failure: BaseException, survives: bool) -> None:
    owner = Owner()
    link = link_of(owner)
    with pytest.raises((ServiceError, asyncio.CancelledError)):
        await link._call("send to", lambda _: fail(failure), timeout=5)
    assert (len(owner.discarded), link._handler is not None) == (0 if survives else 1, survives)
    assert (owner.authenticated, link.attached) == (False, False)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (TypeError("'NoneType' object is not subscriptable"), ServiceFaultError),
        (ValueError("year 99999 is out of range"), ServiceFaultError),
        (sdk.MessageAlreadySettled(action="complete"), InvalidMessageError),
    ],
)
async def test_an_answer_of_another_type_is_an_error_of_the_service_where_nothing_is_sent(
    failure: Exception, kind: type
) -> None:
    owner = Owner()
    link = ReceiveLink(owner, "flights", SimpleNamespace, should_stop=lambda: False)
    with pytest.raises(ServiceError) as caught:
        await link._call("renew locks on", lambda _: fail(failure), timeout=5)
    assert type(caught.value) is kind
    assert len(owner.discarded) == (kind is ServiceFaultError)


async def test_a_link_unused_for_200_seconds_is_idle_and_a_new_one_is_too() -> None:
    link = link_of(Owner())
    attached = [link.attached]
    await link._call("open", lambda _: asyncio.sleep(0), timeout=5)
    for seconds in (199, 2):
        await asyncio.sleep(seconds)
        attached.append(link.attached)
    assert attached == [False, True, False]


async def test_a_closed_client_creates_no_handler() -> None:
    owner = Owner()
    owner.is_closed = True
    link = link_of(owner)
    with pytest.raises(PairClosedError):
        await link._call("open", lambda _: asyncio.sleep(0), timeout=5)
    assert link._handler is None


async def test_calls_run_one_after_another() -> None:
    link, running = link_of(Owner()), list[int]()

    async def use(number: int) -> None:
        running.append(number)
        await asyncio.sleep(1)
        assert running == [number]
        running.clear()

    await asyncio.gather(*(link._call("use", lambda _, number=number: use(number), timeout=5) for number in range(3)))  # type: ignore[misc]


async def test_closing_a_hanging_handler_takes_two_seconds() -> None:
    started = asyncio.get_running_loop().time()
    await close_quietly(SimpleNamespace(close=lambda: asyncio.sleep(60)))
    assert asyncio.get_running_loop().time() - started == pytest.approx(2, abs=0.1)


async def test_before_it_is_attached_a_send_link_has_no_limits() -> None:
    link = SendLink(Owner(), "flights", SimpleNamespace)
    assert (link.max_batch_bytes, link.max_message_bytes, link.attached, link.is_open) == (0, 0, False, False)
    assert link.accepts_mixed_sessions


async def test_attaching_reads_the_limit_of_a_batch_and_a_refused_token_is_explained() -> None:
    owner = Owner()
    batch = SimpleNamespace(max_size_in_bytes=1_000)
    sender = SimpleNamespace(create_message_batch=lambda: asyncio.sleep(0, batch))
    link = SendLink(owner, "flights", lambda: sender)
    assert (link.is_connected, link.new_batch()._max_bytes) == (False, 262_144)
    assert await link.open(timeout=5) == 1_000
    assert [link.is_connected, link.new_batch()._max_bytes] == [True, 1_000]
    assert (link.max_batch_bytes, link.max_message_bytes, link.is_open) == (1_000, 1_000, True)
    await link.open(timeout=5)
    assert owner.bounds == [5.4], "it is open"
    sender.create_message_batch = lambda: fail(sdk.ServiceBusAuthenticationError(message="no"))
    with pytest.raises(ServiceError, match="flights within 5 s: open a link to flights on contoso"):
        await link.reopen(timeout=5)


async def test_the_limit_of_a_message_is_not_public_but_only_premium_has_larger_ones_than_batches() -> None:
    batch = SimpleNamespace(max_size_in_bytes=1024 * 1024)
    link = SendLink(Owner(), "flights", lambda: SimpleNamespace(create_message_batch=lambda: asyncio.sleep(0, batch)))
    await link.open(timeout=5)
    assert (link.max_batch_bytes, link.max_message_bytes) == (1024 * 1024, 100 * 1024 * 1024)


async def test_a_busy_server_is_reported_by_its_class() -> None:
    with pytest.raises(ServerBusyError):
        await link_of(Owner())._call("send to", lambda _: fail(sdk.ServiceBusServerBusyError()), timeout=5)


class FakeSender:
    """A sender of the SDK whose calls take some time and are recorded."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.opening = 0.0

    async def create_message_batch(self) -> Any:
        await asyncio.sleep(self.opening)
        return SimpleNamespace(max_size_in_bytes=1_000)

    async def send_messages(self, _: Any, *, timeout: float) -> None:
        self.calls.append(("send", round(timeout, 1)))

    async def schedule_messages(self, messages: Any, _: Any, *, timeout: float) -> list[int]:
        self.calls.append(("schedule", len(messages), timeout))
        return [*range(7, 7 + len(messages))]

    async def cancel_scheduled_messages(self, numbers: list[int], *, timeout: float) -> None:
        self.calls.append(("cancel", numbers, timeout))


def send_link() -> tuple[SendLink, FakeSender, Owner]:
    owner, sender = Owner(), FakeSender()
    return SendLink(owner, "flights", lambda: sender), sender, owner


def batch_of(*sizes: int) -> EncodedBatch:
    batch = EncodedBatch(1_000_000)
    for size in sizes:
        assert batch.try_add(to_amqp_message(ServiceBusMessage(b"x" * size, message_id="m")))
    return batch


@pytest.mark.parametrize(("opening", "left"), [(0, 5.0), (2, 3.0), (5.2, 0.1)])
async def test_time_for_attaching_is_taken_from_the_call(opening: float, left: float) -> None:
    link, sender, owner = send_link()
    sender.opening = opening
    await link.send(batch_of(1, 1), timeout=5)
    await link.send(batch_of(1), timeout=5)
    assert sender.calls == [("send", left), ("send", 5.0)]
    assert owner.meter.read() == Operations(sends=3)
    assert owner.bounds == [5.4], "a send needs no task of its own, attaching may ignore its cancellation"


async def test_a_connection_that_was_used_longest_ago_is_closed_if_too_many_are_idle() -> None:
    owner, senders = Owner(), [FakeSender(), FakeSender()]
    owner.idle_links = IdleLinks("contoso", 1)
    first, second = (SendLink(owner, "flights", partial(senders.__getitem__, number)) for number in range(2))
    await first.open(timeout=5)
    opening = asyncio.create_task(second.open(timeout=5))
    senders[1].opening = 1.0
    await asyncio.sleep(0.5)
    assert [first.in_use, second.in_use, first.is_connected] == [False, True, True]
    await opening
    assert [second.in_use, first.is_connected, second.is_connected] == [False, False, True]
    assert owner.discarded == [senders[0]]


async def test_operations_are_counted_by_kind_and_size() -> None:
    link, sender, owner = send_link()
    owner.send_operation = Operation.DIVERT
    slot = SendSlot(attempt_timeout=lambda: 5.0)
    assert await link.schedule_in_slot(batch_of(1, 70_000), slot, at=datetime(2030, 1, 1, tzinfo=UTC)) == [7, 8]
    await link.cancel_scheduled((1, 2, 3), timeout=5)
    await link.send_ping(to_amqp_message(ServiceBusMessage(b"")), timeout=5)
    await link.send(batch_of(70_000), timeout=5)
    assert [call[0] for call in sender.calls] == ["schedule", "cancel", "send", "send"]
    assert owner.meter.read() == Operations(management_calls=2 + 3, pings=1, diverts=1, further_increments=2)


@pytest.mark.parametrize("refusal", ["timeout", "wanted", "lock"])
async def test_a_slot_that_is_given_up_sends_nothing(refusal: str) -> None:
    link, sender, owner = send_link()
    started: list[bool] = []
    slot = SendSlot(
        attempt_timeout=lambda: None if refusal == "timeout" else 5.0,
        still_wanted=lambda: refusal != "wanted",
        wait_seconds=2.0,
    )
    if refusal == "lock":
        await link._lock.acquire()
    before = asyncio.get_running_loop().time()
    later = datetime(2030, 1, 1, tzinfo=UTC)
    assert await link.send_in_slot(batch_of(1), slot, lambda: started.append(True)) is False
    assert await link.schedule_in_slot(batch_of(1), slot, lambda: started.append(True), at=later) is None
    waited = asyncio.get_running_loop().time() - before
    assert waited == pytest.approx(4.0 if refusal == "lock" else 0.0, abs=0.1)
    assert (sender.calls, started, owner.meter.read()) == ([], [], Operations())
    assert link._lock.locked() is (refusal == "lock")


async def test_a_link_is_attached_once_and_reopened_on_request() -> None:
    link, sender, owner = send_link()
    slot = SendSlot(attempt_timeout=lambda: 5.0)
    assert [await link.open_in_slot(slot), await link.open_in_slot(SendSlot(attempt_timeout=lambda: None))] == [
        1_000
    ] * 2
    await link.reopen(timeout=5)
    assert (owner.discarded, link.is_open) == ([sender], True)
    assert await send_link()[0].open_in_slot(SendSlot(attempt_timeout=lambda: None)) is None


async def test_section_4_a_link_that_refused_a_mixture_of_sessions_gets_one_session_per_batch() -> None:
    link, _, _ = send_link()
    batch = EncodedBatch(1_000_000)
    for session in "abab":
        assert batch.try_add(to_amqp_message(ServiceBusMessage("x", session_id=session)))
    assert len({link.batch_key(message) for message in batch.messages}) == 1
    assert link.split_if_mixed(batch_of(1, 1)) == []
    assert link.accepts_mixed_sessions
    assert not link.refuses_mixture(ServiceFaultError("broken"), batch.messages)
    assert link.accepts_mixed_sessions
    parts = link.split_if_mixed(batch)
    assert [part.messages for part in parts] == [batch.messages[::2], batch.messages[1::2]]
    assert len({link.batch_key(message) for message in batch.messages}) == 2


async def test_section_4_a_link_idle_for_minutes_is_reopened() -> None:
    link, sender, owner = send_link()
    for seconds, discarded in ((199, []), (201, [sender])):
        await link.send(batch_of(1), timeout=5)
        await asyncio.sleep(seconds)
        assert link.attached is link.is_open is (seconds < 200)
        await link.send(batch_of(1), timeout=5)
        assert owner.discarded == discarded
