"""A pair closes without the second that the SDK's keep-alive task would cost it (SPEC section 7)."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest
from azure.servicebus._pyamqp.aio import AMQPClientAsync

from servicebus_emulator import Fault, FaultKind
from servicebus_pair.core import sdk_names
from servicebus_pair.core.keep_alive import closes_promptly
from tests.core.breakable import Breakable, numbered
from tests.core.stopwatch import Stopwatch


async def test_section_7_closing_waits_for_no_task_that_keeps_a_connection_alive(
    breakable: Breakable, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def keep_alive_for_ever(client: AMQPClientAsync) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(type(client).__name__)

    monkeypatch.setattr(AMQPClientAsync, "_keep_alive_async", keep_alive_for_ever)
    sender = breakable.pair.sender("flights")
    await sender.send(numbered(1))
    breakable.pair.fail_over("flights", reason="opens a link to the backlog")
    await sender.send(numbered(1))
    with caplog.at_level(logging.DEBUG, logger="servicebus_pair"):
        await breakable.pair.close()
    assert ended == ["SendClientAsync", "SendClientAsync"]
    assert not [text for text in caplog.messages if text.startswith("closing a handler ended with")]


@pytest.mark.simulated
async def test_section_4_a_link_that_breaks_is_closed_without_that_second_too(breakable: Breakable) -> None:
    async with breakable.pair.sender("flights") as sender:
        await sender.send(numbered(1))
        breakable.primary.set_fault(Fault(kind=FaultKind.CLOSE_LINK, entity="flights", count=1))
        async with Stopwatch() as watch:
            assert (await sender.send(numbered(1, start=1))).primary == 1
        assert watch.seconds < 0.5


async def test_a_link_that_was_never_opened_is_closed_as_it_is() -> None:
    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    inner = SimpleNamespace(_keep_alive_thread=None, close_async=close)
    closes_promptly(inner)
    await inner.close_async()
    assert closed == [True]


def test_an_sdk_without_that_task_is_closed_as_it_is_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sdk_names, "_said", set())
    closes_promptly(SimpleNamespace())
    (said,) = caplog.messages
    assert said.endswith("closing a link takes up to a second more")
