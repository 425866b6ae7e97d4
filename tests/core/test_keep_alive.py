"""A pair closes without the second that the SDK's keep-alive task would cost it (SPEC section 7)."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace

import pytest
from azure.servicebus._pyamqp.aio import AMQPClientAsync

from servicebus_pair.core import sdk_names
from servicebus_pair.core.keep_alive import end_keep_alive
from tests.core.breakable import Breakable, numbered


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


def test_what_has_no_open_link_is_closed_as_it_is() -> None:
    end_keep_alive(SimpleNamespace())
    end_keep_alive(SimpleNamespace(_handler=None))
    end_keep_alive(SimpleNamespace(_handler=SimpleNamespace(_keep_alive_thread=None)))


def test_an_sdk_without_that_task_is_closed_as_it_is_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sdk_names, "_said", set())
    end_keep_alive(SimpleNamespace(_handler=SimpleNamespace()))
    (said,) = caplog.messages
    assert said.endswith("closing a link takes up to a second more")
