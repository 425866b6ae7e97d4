"""What a token is about: the path of a resource, and whether one lies within another."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

__all__ = ["entity_of", "is_within", "resource_path", "resources_over"]


def resource_path(uri: str) -> str:
    """Return the path of a URI, without case and outer slashes; the namespace itself is the empty path.

    Scheme, host and port do not count: clients sign the address that they know, which behind a custom endpoint
    or a forwarded port is not the one that is listened on. Without a scheme, what precedes the first ``/`` is the host.

    :param uri: such as ``sb://127.0.0.1:5672/flights``, ``https://contoso/`` or ``contoso.example/flights``.
    """
    path = uri.partition("://")[2] if "://" in uri else uri
    path = path.partition("/")[2].partition("?")[0].partition("#")[0]
    return unquote(path).strip("/").casefold()


def entity_of(path: str) -> str:
    """Return the path of the queue or topic to which a resource belongs, such as a subscription or a sub-queue.

    No path of an entity has a segment ``subscriptions``, or one that begins with ``$`` (see ``check_entity_path``).
    """
    return path.partition("/subscriptions/")[0].removesuffix("/subscriptions").partition("/$")[0]


def is_within(path: str, *, resource: str) -> bool:
    """Return whether `path` is that resource, or lies below it; both as :func:`resource_path` returns them."""
    return resource in ("", path) or path.startswith(f"{resource}/")


def resources_over(path: str) -> Iterator[str]:
    """Yield every resource within which `path` lies, itself first and the namespace last."""
    while path != "":
        yield path
        path = path.rpartition("/")[0]
    yield ""
