"""Administration requests and responses, independent of HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from servicebus_emulator.admin.resources import Resource, url_path
from servicebus_emulator.engine.model.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

API_VERSIONS: Final = ("2024-05", "2021-05", "2017-04")
_DEFAULT_PAGE_SIZE: Final = 100
_MAX_PAGE_SIZE: Final = 1000
_MAX_SKIP: Final = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Part of a list: at most `top` items after the first `skip`."""

    skip: int
    top: int


def parse_page(query: Mapping[str, str]) -> Page:
    """Read ``$skip`` and ``$top``.

    :raises InvalidArgument: one of them is not a number in its range.
    """
    return Page(
        skip=_integer(query, "$skip", default=0, minimum=0, maximum=_MAX_SKIP),
        top=_integer(query, "$top", default=_DEFAULT_PAGE_SIZE, minimum=1, maximum=_MAX_PAGE_SIZE),
    )


def _integer(query: Mapping[str, str], name: str, *, default: int, minimum: int, maximum: int) -> int:
    text = query.get(name)
    if text is None:
        return default
    if re.fullmatch(r"[0-9]{1,10}", text) is None or not minimum <= int(text) <= maximum:
        raise InvalidArgument(f"{name} is {text!r}; allowed: {minimum} .. {maximum}")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An administration request without its token.

    :ivar origin: scheme, host and port under which the client reached the server.
    :ivar raw_path: the path of the URL as received, percent-encoded once.
    :ivar update: whether the entity must exist already (header ``If-Match``).
    """

    method: str
    origin: str
    raw_path: str
    query: Mapping[str, str]
    update: bool
    body: bytes

    @property
    def version(self) -> str:
        """The requested API version.

        :raises InvalidArgument: it is missing or unknown.
        """
        version = self.query.get("api-version")
        if version not in API_VERSIONS:
            raise InvalidArgument(f"api-version is {version!r}; allowed: {', '.join(API_VERSIONS)}")
        return version

    def address(self, resource: Resource, *, page: Page | None = None) -> str:
        """Return the URL of a resource, or of one page of it, under the client's origin."""
        part = "" if page is None else f"$skip={page.skip}&$top={page.top}&"
        return f"{self.origin}{url_path(resource)}?{part}api-version={self.version}"


@dataclass(frozen=True, slots=True)
class Response:
    """A status code and an XML document, which may be empty.

    :ivar kind: the kind of an Atom document, for its content type; None = another document.
    :ivar etag: the version of the entity, or None.
    """

    status: int
    document: bytes = b""
    kind: Literal["entry", "feed"] | None = None
    etag: str | None = None
