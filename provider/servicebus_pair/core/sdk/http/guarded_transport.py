"""HTTP with bounded answers: an administration, or an authority, may be in other hands than this process."""

from __future__ import annotations

import ssl
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from azure.core.exceptions import DecodeError, HttpResponseError
from azure.core.pipeline.transport import AioHttpTransport
from multidict import CIMultiDict, CIMultiDictProxy

_MAX_BYTES: Final = 8 * 2**20
# Each one takes the SDK up to a millisecond, in which nothing else happens.
_MAX_ENTRIES: Final = 1000
# In a feed, and in a list of the Resource Manager.
_ENTRIES: Final = (b"<entry", b'"properties"')
# Tags and attributes, and commas in JSON: a hundred queues, which is a page, have about 10,000.
_MARKS: Final = (b"<", b'="', b",")
_MAX_MARKS: Final = 100_000
# All pages of a listing: the 10,000 queues that a namespace may have take about half.
_MAX_CALL_BYTES: Final = 64 * 2**20
_ENCODING: Final = "content-encoding"
_UNPACKED: Final = ("identity", "gzip", "deflate")
# zlib's "window bits" by which it recognises the header of either.
_ANY_HEADER: Final = 32 + zlib.MAX_WBITS


_left: ContextVar[list[int] | None] = ContextVar("_left", default=None)


@contextmanager
def bounded_call() -> Iterator[Callable[[], bool]]:
    """Bound the answers to all requests of one call, such as the pages of a listing, which may have no end.

    :returns: whether any of an answer has been read.
    """
    left = [_MAX_CALL_BYTES]
    token = _left.set(left)
    try:
        yield lambda: left[0] < _MAX_CALL_BYTES
    finally:
        _left.reset(token)


class BoundedTransport(AioHttpTransport):  # type: ignore[misc]  # exported as Any by azure.core
    """Reads answers of up to 8 MiB.

    :param ca_file: CA bundle to verify certificates; by default those of the system.
    """

    def __init__(self, *, ca_file: str | None = None) -> None:
        super().__init__()
        self._ca_file = ca_file
        self._context: ssl.SSLContext | None = None
        self._bounded = False

    async def open(self) -> None:
        """Open the session, with answers that are bounded."""
        if not self._bounded:
            self._bounded = True
            self.session: Any = aiohttp.ClientSession(
                trust_env=True,
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                response_class=_BoundedResponse,
            )
        await super().open()

    async def send(self, request: Any, **settings: Any) -> Any:
        """Send a request."""
        if self._ca_file is not None:
            # The SDK would read the file for each request, and so open a connection for each.
            self._context = self._context or ssl.create_default_context(cafile=self._ca_file)
            settings["ssl"] = self._context
        # What is compressed is read all the same: a service, or a proxy before it, may not ask.
        request.headers["Accept-Encoding"] = "identity"
        return await super().send(request, **settings)


class GuardedTransport(BoundedTransport):
    """Sends requests to the host of the first one only, and reads answers of up to 8 MiB.

    :param plain: send over http, which an emulator serves: the SDK always writes https.
    :param ca_file: CA bundle to verify certificates; by default those of the system.
    """

    def __init__(self, *, plain: bool = False, ca_file: str | None = None) -> None:
        super().__init__(ca_file=ca_file)
        self._plain = plain
        self._origin: tuple[str, str] | None = None

    async def send(self, request: Any, **settings: Any) -> Any:
        """Send a request. :raises HttpResponseError: an answer pointed to another host, to which the token would go."""
        if self._plain:
            request.url = request.url.replace("https://", "http://", 1)
        address = urlsplit(request.url)
        origin = address.scheme, address.netloc.casefold()
        self._origin = self._origin or origin
        if origin != self._origin:
            raise HttpResponseError("the answer points to another host, which is not followed")
        return await super().send(request, **settings)


class _BoundedResponse(aiohttp.ClientResponse):
    """An answer that is read up to a limit, which holds for what it is unpacked to."""

    @property
    def headers(self) -> CIMultiDictProxy[str]:
        """The headers, without the encoding of the body: azure-core would unpack that once more, without a limit."""
        given = super().headers
        return CIMultiDictProxy(CIMultiDict((k, v) for k, v in given.items() if k.lower() != _ENCODING))

    async def read(self) -> bytes:
        """Return the body, unpacked. :raises DecodeError: it is too large, or cannot be unpacked."""
        try:
            return await self._read_bounded(super().headers.get(_ENCODING, "identity").lower())
        except (DecodeError, zlib.error) as error:
            self.close()
            raise DecodeError(str(error)) from error

    async def _read_bounded(self, encoding: str) -> bytes:
        if encoding not in _UNPACKED:
            raise DecodeError(f"the answer is encoded as {encoding!r}, which was not asked for")
        unpacker = None if encoding == "identity" else zlib.decompressobj(_ANY_HEADER)
        blocks, packed_size = [], 0
        room = _MAX_BYTES + 1  # in which one byte too many fits, so that it is seen
        left = _left.get() or [_MAX_CALL_BYTES]
        async for packed in self.content.iter_any():
            block = packed if unpacker is None else unpacker.decompress(packed, room)
            blocks.append(block)
            room, packed_size = room - len(block), packed_size + len(packed)
            left[0] -= len(block)
            if left[0] < 0:
                raise DecodeError(f"the answers to one call are larger than {_MAX_CALL_BYTES} bytes")
            if not room or packed_size > _MAX_BYTES:
                raise DecodeError(f"the answer is larger than {_MAX_BYTES} bytes")
        if unpacker is not None and packed_size and not unpacker.eof:
            raise DecodeError("the compressed answer ends too early")
        body = b"".join(blocks)
        if max(map(body.count, _ENTRIES)) > _MAX_ENTRIES:
            raise DecodeError(f"the answer has more than {_MAX_ENTRIES} entries")
        if sum(map(body.count, _MARKS)) > _MAX_MARKS:
            raise DecodeError(f"the answer has more than {_MAX_MARKS} tags, attributes and commas")
        return body
