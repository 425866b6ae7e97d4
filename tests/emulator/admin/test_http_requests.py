"""Requests that are refused without a login leave nothing in memory, and little in the log."""

from __future__ import annotations

import asyncio
import gc
import gzip

import pytest
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from servicebus_emulator import HostedNamespace

HEAD = (
    b"POST /t/oauth2/v2.0/token HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Content-Type: application/x-www-form-urlencoded\r\n"
)
PACKED = gzip.compress(b"a=1&" * 250_000)


def form(body: bytes, *, size: int | None = None, more: bytes = b"") -> bytes:
    return HEAD + more + b"Content-Length: %d\r\n\r\n" % (len(body) if size is None else size) + body


REFUSED = {
    "compressed": (form(PACKED, more=b"Content-Encoding: gzip\r\n"), b" 415 "),
    "too large": (form(b"a" * 20_000), b" 413 "),
    "not finished": (form(b"a" * 100, size=200), b""),
    "no HTTP": (b"x" * 2000 + b"\r\n\r\n" + b"x" * 50_000, b" 400 "),
    "no chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", b" 400 "),
}


@pytest.mark.parametrize(("request_bytes", "status"), REFUSED.values(), ids=REFUSED)
async def test_a_refused_request_is_freed_without_a_search_for_cycles(
    hosted: HostedNamespace, request_bytes: bytes, status: bytes
):
    gc.collect()
    gc.disable()
    try:
        reader, writer = await asyncio.open_connection(hosted.host, hosted.admin_port)
        writer.write(request_bytes)
        if status == b"":
            await writer.drain()
            while not _kept():  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0)
        else:
            assert status in await reader.readline()
        writer.transport.abort()
        async with asyncio.timeout(5):
            while _kept():  # noqa: ASYNC110 - nor for this
                await asyncio.sleep(0.01)
    finally:
        gc.enable()


async def test_the_log_shortens_the_path_of_a_refused_request(
    hosted: HostedNamespace, caplog: pytest.LogCaptureFixture
):
    reader, writer = await asyncio.open_connection(hosted.host, hosted.admin_port)
    writer.write(b"GET /" + b"q" * 4000 + b"?api-version=2021-05 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b" 401 " in await reader.readline()
    writer.transport.abort()

    assert [len(each) < 2000 for each in caplog.messages if "refused" in each] == [True]


def _kept() -> list[object]:
    return [each for each in gc.get_objects() if isinstance(each, web.BaseRequest | HttpProcessingError)]
