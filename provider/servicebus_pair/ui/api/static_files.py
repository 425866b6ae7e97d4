"""Static files of the page and reconcile reports, with their Content-Security-Policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

__all__ = ["StaticFile", "load_report", "load_static_file"]

_MEDIA_TYPES: Final = {
    "page.html": "text/html",
    "page.css": "text/css",
    **{f"{name}.js": "text/javascript" for name in ("dialogs", "elements", "page", "panels", "plots", "verdict")},
}
_COMMON_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
# No inline script or style, and requests to this server only.
_PAGE_HEADERS: Final = {
    **_COMMON_HEADERS,
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
}
# A Spark job wrote the report: allow its inline styles, but no scripts and no requests.
_REPORT_HEADERS: Final = {
    **_COMMON_HEADERS,
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
}
_REPORT_FILE_NAME: Final = "report.html"
_MAX_REPORT_BYTES: Final = 20 * 2**20


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file with its response headers."""

    content: bytes
    media_type: str
    headers: Mapping[str, str]


@cache
def load_static_file(name: str) -> StaticFile | None:
    """Return a file of the page, or ``None`` if the name is not in the fixed list of files."""
    media_type = _MEDIA_TYPES.get(name)
    if media_type is None:
        return None
    content = files("servicebus_pair.ui").joinpath("static", name).read_bytes()
    return StaticFile(content, media_type, _PAGE_HEADERS)


def load_report(path: object) -> StaticFile | None:
    """Return a reconcile report, or ``None`` if the path is not that of a report readable on this machine.

    :param path: as the recovery's task returned it.
    """
    if not isinstance(path, str) or Path(path).name != _REPORT_FILE_NAME:
        return None
    file = Path(path)
    try:
        if file.stat().st_size > _MAX_REPORT_BYTES:
            return None
        return StaticFile(file.read_bytes(), "text/html", _REPORT_HEADERS)
    except OSError:
        return None
