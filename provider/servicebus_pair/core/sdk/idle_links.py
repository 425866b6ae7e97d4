"""Bounds the connections that senders leave open: the SDK opens one for each link."""

from __future__ import annotations

import logging
from typing import Final, Protocol

__all__ = ["IdleLinks"]

_log = logging.getLogger(__name__)
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
    """The links of one namespace that hold a connection, the one used longest ago first.

    :param most: how many of them may be idle, at least 1; links in use are not bounded.
    """

    def __init__(self, namespace: str, most: int) -> None:
        self._namespace = namespace
        self._most = most
        self._links: dict[_Link, None] = {}
        self._warned = False

    def used(self, link: _Link) -> None:
        """Record that a call on ``link`` succeeded, and disconnect the links used longest ago if too many are idle."""
        self._links.pop(link, None)
        self._links[link] = None
        if len(self._links) > self._most:
            self._trim(link)

    def _trim(self, current: _Link) -> None:
        self._links = {link: None for link in self._links if link.is_connected}
        # The current link is idle as soon as its call returns.
        idle = [link for link in self._links if link is current or not link.in_use]
        for link in idle[: max(0, len(idle) - self._most)]:
            self._warn_once(link)
            link.disconnect()
            del self._links[link]

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
