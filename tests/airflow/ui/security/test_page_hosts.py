"""The page queries configured hosts only, repeats nothing that they answer, and says so when it cannot query."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from fsspec import AbstractFileSystem

from servicebus_pair.core import read_pair_settings
from servicebus_pair.ui.cache import refresh_cache
from servicebus_pair.ui.sources.airflow_queries import Records
from servicebus_pair.ui.sources.collector import Collector

CANARY = b"canary of an internal host"
ANSWER = b"HTTP/1.1 403 %b\r\nContent-Type: text/xml\r\nContent-Length: 60\r\n\r\n<Error><Detail>%b</Detail></Error>"


def settings_of(port: int) -> dict[str, Any]:
    text = f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"
    return {
        "primary_connection_string": text.replace("127.0.0.1", "localhost"),
        "secondary_connection_string": text,
        "primary_namespace": "one",
        "secondary_namespace": "two",
        "secondary_administration": f"127.0.0.1:{port}",
    }


async def test_what_a_host_answers_is_not_repeated():
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(100)
        writer.write(ANSWER % (CANARY, CANARY))
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        status = await Collector(read_pair_settings(settings_of(port))).collect()

    assert "canary" not in repr(status)
    assert status.error is not None
    assert re.fullmatch(r"count: \w+", status.error)
    assert status.secondary.error == "it does not speak AMQP"


def view_of(cache: refresh_cache.RefreshCache, condition: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    deadline = time.monotonic() + 30
    while True:
        pair: dict[str, Any] = json.loads(cache.get().pairs.get("contoso_pair", b"{}"))
        if pair and condition(pair):
            return pair
        assert time.monotonic() < deadline, pair
        time.sleep(0.05)


@pytest.fixture
def configured(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = read_pair_settings(settings_of(1))
    monkeypatch.setattr(refresh_cache, "load_pair_settings", lambda _: {"contoso_pair": settings})


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize(
    ("asset_ids", "pairs", "queried"),
    [({}, None, False), ({"contoso_pair": 1}, None, True), ({}, ["contoso_pair"], True), ({}, ["other"], False)],
)
def test_only_pairs_with_an_asset_or_in_the_setting_are_queried(
    monkeypatch: pytest.MonkeyPatch, asset_ids: dict[str, int], pairs: list[str] | None, queried: bool
):
    monkeypatch.setattr(refresh_cache, "read_records", lambda _: Records(asset_ids=asset_ids))
    made: list[object] = []

    class Watched(Collector):
        def __init__(self, settings: Any, **options: Any) -> None:
            made.append(settings)
            super().__init__(settings, **options)

    monkeypatch.setattr(refresh_cache, "Collector", Watched)
    with closing(refresh_cache.RefreshCache(interval=0.2, pairs=pairs)) as cache:
        seen = view_of(cache, lambda pair: pair["secondary"]["error"])

    assert bool(made) is queried
    assert seen["secondary"]["error"].startswith("not queried: no DAG has the asset") is not queried


@pytest.mark.parametrize(
    ("spool", "named", "opened"),
    [
        *((f"{scheme}://bucket-1/spool", False, True) for scheme in ("s3", "s3a", "gs", "gcs", "abfs", "az")),
        ("abfss://container@account.dfs.core.windows.net/spool", False, True),
        ("s3://bucket", False, True),
        *((f"{scheme}://169.254.169.254/x", False, False) for scheme in ("webhdfs", "webdav", "hdfs", "smb", "dbfs")),
        *((f"{scheme}://bucket:8020/x", False, False) for scheme in ("sftp", "s3", "S3")),
        *((f"abfs://c@host\\{end}/x", False, False) for end in (".dfs.core.windows.net", "")),
        ("webhdfs://namenode:9870/x", True, True),
    ],
)
def test_a_spool_at_a_host_that_its_url_names_is_opened_for_pairs_in_the_setting_only(
    monkeypatch: pytest.MonkeyPatch, spool: str, named: bool, opened: bool
):
    """An editor of connections writes the URL; to open it calls the host of some."""
    found: list[str] = []

    class Store(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
        def __init__(self, url: str) -> None:
            found.append(url)
            super().__init__(skip_instance_cache=True)

        def find(self, *_: object, **__: object) -> dict[str, Any]:
            return {}

    monkeypatch.setattr("fsspec.core.url_to_fs", lambda url: (Store(url), "root"))
    settings = read_pair_settings({**settings_of(1), "spool": spool})
    monkeypatch.setattr(refresh_cache, "load_pair_settings", lambda _: {"contoso_pair": settings})
    monkeypatch.setattr(refresh_cache, "read_records", lambda _: Records(asset_ids={"contoso_pair": 1}))
    for pairs in [["contoso_pair"]] if named else [None, ["*"]]:
        with closing(refresh_cache.RefreshCache(interval=0.2, pairs=pairs)) as cache:
            seen = view_of(cache, lambda pair: pair["spool"]["configured"])

        assert set(found) == ({spool} if opened else set())
        assert str(seen["spool"]["error"]).startswith("not looked into") is not opened


@pytest.mark.usefixtures("configured")
def test_a_collector_that_fails_says_so_on_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    def fail(_: object, **__: object) -> Collector:
        raise RuntimeError("canary")

    monkeypatch.setattr(refresh_cache, "read_records", lambda _: Records(states={"contoso_pair": {}}))
    monkeypatch.setattr(refresh_cache, "Collector", fail)
    with closing(refresh_cache.RefreshCache(interval=0.2, folder=tmp_path, pairs=["*"])) as cache:
        seen = view_of(cache, lambda pair: pair["secondary"]["error"])

    assert seen["secondary"]["error"] == "this server cannot query it: RuntimeError"


@pytest.mark.usefixtures("configured")
def test_a_page_that_cannot_be_refreshed_says_so(monkeypatch: pytest.MonkeyPatch):
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("canary")

    monkeypatch.setattr(refresh_cache, "read_records", lambda _: Records())
    monkeypatch.setattr(refresh_cache.RefreshCache, "_update_collectors", fail)
    with closing(refresh_cache.RefreshCache(interval=0.2, pairs=["*"])) as cache:
        head = json.loads(cache.get().head)

    assert head["problem"] == "this page cannot be refreshed: RuntimeError"
