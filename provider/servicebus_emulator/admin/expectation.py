"""The expectation that HTTP clients may have before they send a body (RFC 9110, section 10.1.1)."""

from __future__ import annotations

from aiohttp import HttpVersion11, web

__all__ = ["go_on"]


async def go_on(request: web.Request) -> None:
    """Let a client that asks first send its body; aiohttp's own answer to other expectations fails over odd bytes.

    :raises HTTPExpectationFailed: when the client expects anything else.
    """
    if request.headers["Expect"].lower() != "100-continue":
        raise web.HTTPExpectationFailed(text="allowed: 100-continue, or no expectation")
    if request.version == HttpVersion11 and request.transport is not None:
        request.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
