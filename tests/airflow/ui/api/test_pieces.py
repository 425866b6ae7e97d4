from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.requests import ClientDisconnect

from servicebus_pair.ui.api import pieces
from servicebus_pair.ui.api.pieces import PiecesResponse, pieces_of
from servicebus_pair.ui.api.static_files import REPORT_HEADERS

SCOPE: dict[str, Any] = {"type": "http", "asgi": {"spec_version": "2.4"}}


async def never() -> Any:
    await asyncio.Event().wait()


async def test_contents_are_sent_in_pieces_with_their_size():
    contents = b"a" * 100, b"b" * 200_000, b"", b"c"
    response = pieces_of(*contents, media_type="application/json", headers={"Cache-Control": "no-store"})
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await response(SCOPE, never, send)

    bodies = [message["body"] for message in sent[1:]]
    assert b"".join(bodies) == b"".join(contents)
    assert max(map(len, bodies)) == 2**16
    headers = {b"cache-control": b"no-store", b"content-length": b"200101", b"content-type": b"application/json"}
    assert dict(sent[0]["headers"]) == headers


async def test_a_client_that_does_not_read_gets_no_more_pieces_and_no_end(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(pieces, "_SEND_SECONDS", 0.01)
    made, sent = list[int](), list[Any]()

    async def count() -> AsyncGenerator[bytes]:
        for number in range(3):
            made.append(number)
            yield b"x"

    async def send(message: Any) -> None:
        sent.append(message["type"])
        if len(sent) > 1:
            await never()

    with pytest.raises(ClientDisconnect):
        await PiecesResponse(count(), size=3, media_type="text/html", headers={})(SCOPE, never, send)

    assert (made, sent) == ([0], ["http.response.start", "http.response.body"])


async def test_a_report_keeps_its_size_when_the_server_compresses():
    """Without it, a report that was cut off would look like a whole one."""
    from starlette.middleware.gzip import GZipMiddleware

    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    response = pieces_of(b"x" * 100_000, media_type="text/html", headers=REPORT_HEADERS)
    await GZipMiddleware(response)({**SCOPE, "headers": [(b"accept-encoding", b"gzip")]}, never, send)

    assert dict(sent[0]["headers"])[b"content-length"] == b"100000"
    assert sum(len(message["body"]) for message in sent[1:]) == 100_000
