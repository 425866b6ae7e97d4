"""The administration SDKs over plain HTTP, although they put https into every URL."""

from __future__ import annotations

from typing import Any

from azure.core.pipeline.transport import AioHttpTransport, RequestsTransport
from azure.core.rest import HttpRequest


class PlainTransport(AioHttpTransport):  # type: ignore[misc] # azure-core names it when asked only
    async def send(self, request: HttpRequest, **options: Any) -> Any:
        return await super().send(_plain(request), **options)


class BlockingPlainTransport(RequestsTransport):  # type: ignore[misc] # the same
    def send(self, request: HttpRequest, **options: Any) -> Any:
        return super().send(_plain(request), **options)


def _plain(request: HttpRequest) -> HttpRequest:
    request.url = request.url.replace("https://", "http://", 1)
    return request
