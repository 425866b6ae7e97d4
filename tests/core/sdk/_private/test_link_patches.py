"""Links open and close without the fixed delays of the SDK (SPEC sections 4, 5 and 7)."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import certifi
import pytest
from azure.servicebus._pyamqp.aio import AMQPClientAsync

from servicebus_pair.core import PairOptions
from servicebus_pair.core.protocol.backlog_queues import session_queue_paths
from servicebus_pair.core.sdk._private import link_patches
from servicebus_pair.core.sdk._private.link_patches import _close_without_keep_alive, patch_link, shared_ssl_context
from tests.core.support.local_pair import LocalPair, messages, numbered, open_local_pair

pytestmark = pytest.mark.fast_sdk

SDK_SLEEP_SECONDS = 0.05


class FakeSender:
    """A sender of the SDK that is ready after a number of responses, each of which takes so many seconds."""

    def __init__(self, responses: int, *, seconds: float = 0.0) -> None:
        self.missing, self.seconds = responses, seconds
        self.polls = 0
        self._handler: Any = None

    def _create_handler(self, auth: object) -> None:
        del auth
        self._handler = SimpleNamespace(client_ready_async=self.ready, close_async=None)

    async def ready(self) -> bool:
        await asyncio.sleep(self.seconds)
        self.polls += 1
        self.missing -= 1
        return self.missing < 0

    async def open(self) -> bool:
        self._create_handler(None)
        return bool(await self._handler.client_ready_async())


async def test_opening_polls_without_sleeping_until_ready_and_then_restores_the_sdk() -> None:
    sender = patch_link(FakeSender(responses=10))
    assert await sender.open()
    assert sender.polls == 11
    assert sender._handler.client_ready_async == sender.ready


@pytest.mark.simulated
@pytest.mark.parametrize(("seconds", "polls"), [(0.1, 11), (0.2, 1)])
async def test_without_a_response_the_sdk_decides_how_long_to_wait(seconds: float, polls: int) -> None:
    sender = patch_link(FakeSender(responses=10, seconds=seconds))
    assert await sender.open() is (polls == 11)
    assert sender.polls == polls


async def test_polling_stops_after_the_maximum_number_of_responses() -> None:
    sender = patch_link(FakeSender(responses=10_000))
    assert not await sender.open()
    assert sender.polls == 50


async def test_a_pair_opens_its_links_without_the_sleeps_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    sleeps: list[float] = []
    sleep = asyncio.sleep

    async def recorded_sleep(seconds: float, result: Any = None) -> Any:
        sleeps.append(seconds)
        return await sleep(seconds, result)

    monkeypatch.setattr(link_patches, "_NO_RESPONSE_SECONDS", inf)
    async with open_local_pair("flights") as both:
        await both.put_into_backlog("flights", messages(1))
        monkeypatch.setattr(asyncio, "sleep", recorded_sleep)
        report = await both.pair.syphon().drain()
        monkeypatch.setattr(asyncio, "sleep", sleep)
        assert report.moved == {"flights": 1}
    assert SDK_SLEEP_SECONDS not in sleeps


@pytest.mark.simulated
async def test_section_6_sessions_are_listed_without_the_sleeps_of_the_sdk() -> None:
    async with open_local_pair(options=PairOptions(backlog_queue_count=1, ordering="session")) as both:
        started = asyncio.get_running_loop().time()
        await both.pair._open().secondary.list_sessions(session_queue_paths("contoso", 1)[0], timeout=5)
        assert asyncio.get_running_loop().time() - started < 0.1


@pytest.mark.usefixtures("public_sdk")
def test_on_the_public_path_a_link_is_not_patched() -> None:
    sender = FakeSender(responses=1)
    assert patch_link(sender) is sender
    assert "_create_handler" not in vars(sender)


def test_all_links_of_a_client_share_one_ca_bundle() -> None:
    public, given = shared_ssl_context(None, tls=True), shared_ssl_context(certifi.where(), tls=True)
    assert public is not None
    assert given is not None
    assert public.check_hostname
    assert public.get_ca_certs() == given.get_ca_certs() != []


def test_without_tls_no_ca_bundle_is_read(tmp_path: Path) -> None:
    context = shared_ssl_context(str(tmp_path / "missing"), tls=False)
    assert context is not None
    assert context.get_ca_certs() == []


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_an_unreadable_ca_bundle_is_left_for_the_first_link_to_report(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").write_text("no certificate", encoding="utf-8")
    assert shared_ssl_context(str(tmp_path / name), tls=True) is None


async def test_section_7_closing_does_not_wait_for_the_keep_alive_task(
    local_pair: LocalPair, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: list[str] = []

    async def keep_alive_for_ever(client: AMQPClientAsync) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(type(client).__name__)

    monkeypatch.setattr(AMQPClientAsync, "_keep_alive_async", keep_alive_for_ever)
    sender = local_pair.pair.sender("flights")
    await sender.send(numbered(1))
    await local_pair.pair.fail_over("flights", reason="opens a link to the backlog")
    await sender.send(numbered(1))
    with caplog.at_level(logging.DEBUG, logger="servicebus_pair"):
        await local_pair.pair.close()
    assert ended == ["SendClientAsync", "SendClientAsync"]
    assert not [text for text in caplog.messages if text.startswith("closing a handler ended with")]


async def test_a_link_without_a_keep_alive_task_is_closed() -> None:
    closed: list[bool] = []

    async def close() -> None:
        closed.append(True)

    inner = SimpleNamespace(_keep_alive_thread=None, close_async=close)
    _close_without_keep_alive(inner)
    await inner.close_async()
    assert closed == [True]
