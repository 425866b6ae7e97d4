"""Sends large responses in pieces, so that a client that does not read costs neither memory nor an open file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Final

from fastapi.responses import StreamingResponse

if TYPE_CHECKING:
    from starlette.types import Send

_PIECE_BYTES: Final = 2**16
_SEND_SECONDS: Final = 60.0


class PiecesResponse(StreamingResponse):
    """A response of known size, which ends after 60 s wherever it is; the size tells the client what is missing.

    :param pieces: its content; each is made when the one before it was sent.
    :param size: of all pieces, in bytes.
    """

    def __init__(
        self, pieces: AsyncGenerator[bytes], *, size: int, media_type: str, headers: Mapping[str, str]
    ) -> None:
        super().__init__(pieces, media_type=media_type, headers={**headers, "Content-Length": str(size)})

    async def stream_response(self, send: Send) -> None:
        """Send what can be sent in time."""
        async with asyncio.timeout(_SEND_SECONDS):
            await super().stream_response(send)


def pieces_of(*contents: bytes, media_type: str, headers: Mapping[str, str]) -> PiecesResponse:
    """Return a response of contents that are shared with other responses, and not copied."""

    async def cut() -> AsyncGenerator[bytes]:
        for content in contents:
            for start in range(0, len(content), _PIECE_BYTES):
                yield content[start : start + _PIECE_BYTES]

    return PiecesResponse(cut(), size=sum(map(len, contents)), media_type=media_type, headers=headers)
