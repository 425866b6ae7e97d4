"""The files of the page, read once, and the headers that let nothing else in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import Final

__all__ = ["PAGE_HEADERS", "Asset", "asset", "page", "report"]

_MEDIA_TYPES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "page.css": "text/css",
        **{f"{name}.js": "text/javascript" for name in ("dialogs", "elements", "page", "panels", "plots", "verdict")},
    }
)
_COMMON: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
# No inline script or style, and no network but this server's.
PAGE_HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_COMMON,
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
        "img-src 'self' data:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    }
)
# A report is a file that a job wrote: it may look as it likes, and run nothing.
_REPORT_HEADERS: Final[Mapping[str, str]] = MappingProxyType(
    {
        **_COMMON,
        "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
    }
)
_REPORT_NAME: Final = "report.html"
_MOST_REPORT_BYTES: Final = 20 * 2**20


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is served."""

    content: bytes
    media_type: str
    headers: Mapping[str, str]


@cache
def page() -> bytes:
    """Return the page."""
    return _read("page.html")


@cache
def asset(name: str) -> Asset | None:
    """Return a file that the page is made of; there are no others."""
    media_type = _MEDIA_TYPES.get(name)
    return None if media_type is None else Asset(_read(name), media_type, PAGE_HEADERS)


def report(path: object) -> Asset | None:
    """Return a reconcile report, if it is one and this machine has it.

    :param path: what the recovery's task said.
    """
    if not isinstance(path, str) or Path(path).name != _REPORT_NAME:
        return None
    file = Path(path)
    try:
        if file.stat().st_size > _MOST_REPORT_BYTES:
            return None
        return Asset(file.read_bytes(), "text/html", _REPORT_HEADERS)
    except OSError:
        return None


def _read(name: str) -> bytes:
    return files("servicebus_pair.ui").joinpath("static", name).read_bytes()
