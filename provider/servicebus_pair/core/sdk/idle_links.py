"""Bounds the connections that senders leave open: the SDK opens one for each link."""

from __future__ import annotations

from typing import Final, Protocol

from servicebus_pair.core.model.logs import get_logger

_log = get_logger(__name__)
# A link that is closed so soon after its last use will probably be opened again.
_SOON_SECONDS: Final = 10.0


class _Link(Protocol):
    path: str

    @property
    def is_connected(self) -> bool: ...
    @property
    def in_use(self) -> bool: ...
    def seconds_unused(self) -> float: ...
    def disconnect(self) -> None: ...


class IdleLinks:
    """The links of one namespace that hold a connection.

    :param most: how many of them may be idle, at least 1; links in use are not bounded.
    :ivar crowded: more links than that may hold a connection: whoever has used one calls :meth:`trim`.
    """

    def __init__(self, namespace: str, most: int) -> None:
        self._namespace = namespace
        self._most = most
        self._links: dict[_Link, None] = {}
        self._warned = False
        self.crowded = False

    def connected(self, link: _Link) -> None:
        """Record that ``link`` opened a connection."""
        self._links[link] = None
        self.crowded = len(self._links) > self._most

    def trim(self, current: _Link) -> None:
        """Disconnect the links used longest ago if too many are idle.

        :param current: was used just now, and is idle as soon as its call returns.
        """
        self._links = {link: None for link in self._links if link.is_connected}
        idle = [link for link in self._links if link is not current and not link.in_use]
        idle.sort(key=lambda link: link.seconds_unused(), reverse=True)
        for link in idle[: max(0, len(idle) + 1 - self._most)]:
            self._warn_once(link)
            link.disconnect()
            del self._links[link]
        self.crowded = len(self._links) > self._most

    def _warn_once(self, link: _Link) -> None:
        if self._warned or link.seconds_unused() > _SOON_SECONDS:
            return
        self._warned = True
        _log.warning(
            "namespace=%s: more than max_idle_connections=%d entities are sent to by turns, so that connections are "
            "closed and opened again: raise it",
            self._namespace,
            self._most,
        )
