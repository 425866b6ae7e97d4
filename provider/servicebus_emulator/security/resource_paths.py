"""Paths of the resources that tokens grant access to."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote


def resource_path(uri: str) -> str:
    """Return the case-folded path of a URI without outer slashes; the empty path is the namespace itself.

    Scheme, host and port are ignored: clients sign the address that they use, which behind a custom endpoint or a
    forwarded port differs from the listening address. Without a scheme, the host is what precedes the first ``/``.

    :param uri: such as ``sb://127.0.0.1:5672/flights``, ``https://contoso/`` or ``contoso.example/flights``.
    """
    path = uri.partition("://")[2] if "://" in uri else uri
    path = path.partition("/")[2].partition("?")[0].partition("#")[0]
    return unquote(path).strip("/").casefold()


def entity_of(path: str) -> str:
    """Return the path of the queue or topic that a resource, such as a subscription or a subqueue, belongs to.

    Entity paths have no segment ``subscriptions`` and none that begins with ``$`` (see :func:`check_entity_path`).
    """
    return path.partition("/subscriptions/")[0].removesuffix("/subscriptions").partition("/$")[0]


def is_within(path: str, *, resource: str) -> bool:
    """Return whether `path` equals a resource or lies below it; both as returned by :func:`resource_path`."""
    return resource in ("", path) or path.startswith(f"{resource}/")


def self_and_ancestors(path: str) -> Iterator[str]:
    """Yield `path` and every resource that contains it, the namespace last."""
    while path != "":
        yield path
        path = path.rpartition("/")[0]
    yield ""
