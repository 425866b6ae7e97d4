"""A link bounds its calls, and replaces its handler after a failure that the SDK's link does not survive."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import exceptions as sdk

from servicebus_pair.core.model.errors import PairClosedError, ServerBusyError, ServiceError
from servicebus_pair.core.model.usage_meter import Meter, Operation
from servicebus_pair.core.sdk.link import Link, close_quietly
from servicebus_pair.core.sdk.send_link import SendLink

pytestmark = pytest.mark.simulated


class Owner:
    """A client that records what its links ask for."""

    namespace = "contoso"
    send_operation = Operation.SEND

    def __init__(self) -> None:
        self.authenticated, self.meter, self.closed = False, Meter(), False
        self.bounds: list[float] = []
        self.discarded: list[Any] = []

    def check_open(self) -> None:
        if self.closed:
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
    assert (owner.discarded, link._is_idle) == ([], False)


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
    assert not owner.authenticated


async def test_a_link_unused_for_200_seconds_is_idle_and_a_new_one_is_too() -> None:
    link = link_of(Owner())
    assert link._is_idle
    await link._call("open", lambda _: asyncio.sleep(0), timeout=5)
    await asyncio.sleep(199)
    assert not link._is_idle
    await asyncio.sleep(2)
    assert link._is_idle


async def test_a_closed_client_creates_no_handler() -> None:
    owner = Owner()
    owner.closed = True
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


async def test_attaching_reads_both_limits_and_a_refused_token_is_explained() -> None:
    owner = Owner()
    batch = SimpleNamespace(max_size_in_bytes=1_000)
    sender = SimpleNamespace(create_message_batch=lambda: asyncio.sleep(0, batch), _max_message_size_on_link=9_000)
    link = SendLink(owner, "flights", lambda: sender)
    assert await link.open(timeout=5) == 1_000
    assert (link.max_batch_bytes, link.max_message_bytes, link.is_open) == (1_000, 9_000, True)
    await link.open(timeout=5)
    assert owner.bounds == [5.4], "it is open"
    sender.create_message_batch = lambda: fail(sdk.ServiceBusAuthenticationError(message="no"))
    with pytest.raises(ServiceError, match="flights within 5 s: open a link to flights on contoso"):
        await link.reopen(timeout=5)


async def test_a_busy_server_is_reported_by_its_class() -> None:
    with pytest.raises(ServerBusyError):
        await link_of(Owner())._call("send to", lambda _: fail(sdk.ServiceBusServerBusyError()), timeout=5)
