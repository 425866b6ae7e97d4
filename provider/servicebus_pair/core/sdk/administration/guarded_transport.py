"""HTTP to one host, whose answers are bounded: an administration may be in other hands than this process."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from azure.core.exceptions import DecodeError, HttpResponseError
from azure.core.pipeline.transport import AioHttpTransport

__all__ = ["GuardedTransport"]

_MAX_BYTES: Final = 8 * 2**20


class GuardedTransport(AioHttpTransport):  # type: ignore[misc]  # exported as Any by azure.core
    """Sends requests to the host of the first one only, and reads answers of up to 8 MiB.

    :param plain: send over http, which an emulator serves: the SDK always writes https.
    :param ca_file: CA bundle to verify certificates; by default that of ``certifi``.
    """

    def __init__(self, *, plain: bool = False, ca_file: str | None = None) -> None:
        super().__init__(**({} if ca_file is None else {"connection_verify": ca_file}))
        self._plain = plain
        self._origin: tuple[str, str] | None = None
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
        """Send a request. :raises HttpResponseError: an answer pointed to another host, to which the token would go."""
        if self._plain:
            request.url = request.url.replace("https://", "http://", 1)
        address = urlsplit(request.url)
        origin = address.scheme, address.netloc.casefold()
        self._origin = self._origin or origin
        if origin != self._origin:
            raise HttpResponseError("the answer points to another host, which is not followed")
        # What is compressed has no known size.
        request.headers["Accept-Encoding"] = "identity"
        return await super().send(request, **settings)


class _BoundedResponse(aiohttp.ClientResponse):
    """An answer that is not read beyond a limit."""

    async def read(self) -> bytes:
        """Return the body. :raises DecodeError: it is too large, or compressed."""
        if self.headers.get("Content-Encoding", "identity") != "identity":
            self.close()
            raise DecodeError("the answer is compressed, which was not asked for")
        blocks, size = [], 0
        async for block in self.content.iter_any():
            blocks.append(block)
            size += len(block)
            if size > _MAX_BYTES:
                self.close()
                raise DecodeError(f"the answer is larger than {_MAX_BYTES} bytes")
        return b"".join(blocks)
