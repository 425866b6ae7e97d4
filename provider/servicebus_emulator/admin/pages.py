"""What the administration port serves beside the administration API."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

__all__ = ["Page"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """An answer to a method at a path.

    An entity may have the same name: requests about entities carry ``api-version``, these do not.

    :ivar public: whether everybody gets an answer; otherwise see :mod:`servicebus_emulator.admin.guarding`.
    """

    method: str
    path: str
    answer: Callable[[web.Request], Awaitable[web.StreamResponse]]
    public: bool = False
