"""Static files of the page, and the headers of reconcile reports, with their Content-Security-Policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

_MEDIA_TYPES: Final = {
    "page.html": "text/html",
    "page.css": "text/css",
    **{
        f"{name}.js": "text/javascript"
        for name in ("dialogs", "elements", "page", "panels", "plots", "rungs", "verdict")
    },
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
REPORT_HEADERS: Final = {
    **_COMMON_HEADERS,
    # So that Airflow does not compress it: it then sends no size, and ends what was cut off like a whole report.
    "Content-Encoding": "identity",
    "Content-Security-Policy": "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'self'",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file with its response headers."""

    content: bytes
    media_type: str
    headers: Mapping[str, str]


def load_static_file(name: str) -> StaticFile | None:
    """Return a file of the page, or ``None`` if the name is not in the fixed list of files."""
    return _load(name) if name in _MEDIA_TYPES else None


# Cached for the names of the list only: a client asks for any others.
@cache
def _load(name: str) -> StaticFile:
    content = files("servicebus_pair.ui").joinpath("static", name).read_bytes()
    return StaticFile(content, _MEDIA_TYPES[name], _PAGE_HEADERS)
