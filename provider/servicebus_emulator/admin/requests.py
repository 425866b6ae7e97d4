"""What an administration request says and what an answer carries, without HTTP."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from servicebus_emulator.admin.resources import Resource, url_path
from servicebus_emulator.engine.errors import InvalidArgument

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["API_VERSIONS", "Answer", "Page", "Request"]

API_VERSIONS: Final = ("2024-05", "2021-05", "2017-04")
_DEFAULT_PAGE: Final = 100
_MAX_PAGE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A part of a list: at most `top` items after the first `skip`."""

    skip: int
    top: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """An administration request, without its token.

    :param origin: scheme, host and port under which the client reached the server.
    :param raw_path: the URL's path as it came, percent-encoded once.
    :param update: whether the entity must exist already (header ``If-Match``).
    """

    method: str
    origin: str
    raw_path: str
    query: Mapping[str, str]
    update: bool
    body: bytes

    @property
    def version(self) -> str:
        """The API version that the client asked for.

        :raises InvalidArgument: when there is none, or one that is not known.
        """
        version = self.query.get("api-version")
        if version not in API_VERSIONS:
            raise InvalidArgument(f"api-version is {version!r}; allowed: {', '.join(API_VERSIONS)}")
        return version

    @property
    def page(self) -> Page:
        """The part of a list that the client asked for.

        :raises InvalidArgument: when ``$skip`` or ``$top`` is no number in its range.
        """
        return Page(
            skip=self._number("$skip", default=0, least=0, most=2**31 - 1),
            top=self._number("$top", default=_DEFAULT_PAGE, least=1, most=_MAX_PAGE),
        )

    def address(self, resource: Resource, *, page: Page | None = None) -> str:
        """Return the URL of a resource, or of one page of it, as this client would write it."""
        part = "" if page is None else f"$skip={page.skip}&$top={page.top}&"
        return f"{self.origin}{url_path(resource)}?{part}api-version={self.version}"

    def _number(self, name: str, *, default: int, least: int, most: int) -> int:
        text = self.query.get(name)
        if text is None:
            return default
        if re.fullmatch(r"[0-9]{1,10}", text) is None or not least <= int(text) <= most:
            raise InvalidArgument(f"{name} is {text!r}; allowed: {least} .. {most}")
        return int(text)


@dataclass(frozen=True, slots=True)
class Answer:
    """A status code and an XML document, empty where there is nothing to say."""

    status: int
    document: bytes = b""
