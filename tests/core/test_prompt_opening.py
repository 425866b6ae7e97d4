"""A link opens as fast as its answers come: what bounded times (SPEC sections 4 and 5) and short drains live on."""

from __future__ import annotations

import asyncio
import logging
from math import inf
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import certifi
import pytest

from servicebus_pair.core import prompt_opening, sdk_names
from servicebus_pair.core.prompt_opening import authorities, opens_promptly
from tests.core.hosted import hosted, messages

SDK_NAP_SECONDS = 0.05


class Opening:
    """A sender of the SDK, as far as opening it goes: ready after so many answers."""

    def __init__(self, answers: int) -> None:
        self.missing = answers
        self.asked = 0
        self._handler: Any = None

    def _create_handler(self, auth: object) -> None:
        del auth
        self._handler = SimpleNamespace(client_ready_async=self.ready)

    async def ready(self) -> bool:
        self.asked += 1
        self.missing -= 1
        return self.missing < 0

    async def open(self) -> bool:
        self._create_handler(None)
        return bool(await self._handler.client_ready_async())


async def test_a_link_goes_from_answer_to_answer_until_it_is_open_and_then_is_the_sdks_own_again() -> None:
    opening = opens_promptly(Opening(answers=10))
    assert await opening.open()
    assert opening.asked == 11
    assert opening._handler.client_ready_async == opening.ready


async def test_where_no_answer_comes_it_is_the_sdk_that_decides_how_long_to_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompt_opening, "_NOTHING_CAME_SECONDS", 0.0)
    opening = opens_promptly(Opening(answers=10))
    assert not await opening.open()
    assert opening.asked == 1


async def test_a_connection_that_answers_at_once_and_for_ever_does_not_keep_the_process_busy() -> None:
    opening = opens_promptly(Opening(answers=10_000))
    assert not await opening.open()
    assert opening.asked == prompt_opening._MOST_ANSWERS


async def test_the_links_of_a_pair_open_without_the_naps_of_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float, result: Any = None) -> Any:
        naps.append(seconds)
        return await sleep(seconds, result)

    monkeypatch.setattr(prompt_opening, "_NOTHING_CAME_SECONDS", inf)
    async with hosted("flights") as both:
        await both.put_into_backlog("flights", messages(1))
        monkeypatch.setattr(asyncio, "sleep", noted)
        report = await both.pair.syphon().drain()
        monkeypatch.setattr(asyncio, "sleep", sleep)
        assert report.moved == {"flights": 1}
    assert SDK_NAP_SECONDS not in naps


@pytest.mark.parametrize("lacking", [SimpleNamespace(), SimpleNamespace(_create_handler=lambda _: None)])
def test_a_link_of_an_sdk_without_these_names_opens_as_it_likes_and_the_log_says_so(
    lacking: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sdk_names, "_said", set())
    assert opens_promptly(lacking) is lacking
    if hasattr(lacking, "_create_handler"):
        lacking._create_handler(None)
    said, *more = caplog.messages
    assert said.endswith("opening a link takes up to a second more")
    assert all(text.endswith("closing a link takes up to a second more") for text in more)
    assert caplog.records[0].levelno == logging.WARNING


def test_all_links_of_a_client_share_the_authorities_that_it_trusts() -> None:
    public, given = authorities(None, tls=True), authorities(certifi.where(), tls=True)
    assert public is not None
    assert given is not None
    assert public.check_hostname
    assert public.get_ca_certs() == given.get_ca_certs() != []


def test_without_tls_nobody_is_trusted_and_nothing_is_read(tmp_path: Path) -> None:
    nobody = authorities(str(tmp_path / "missing"), tls=False)
    assert nobody is not None
    assert nobody.get_ca_certs() == []


@pytest.mark.parametrize("name", ["missing", "empty"])
def test_a_file_of_authorities_that_cannot_be_read_is_left_to_the_first_link(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").write_text("no certificate", encoding="utf-8")
    assert authorities(str(tmp_path / name), tls=True) is None
