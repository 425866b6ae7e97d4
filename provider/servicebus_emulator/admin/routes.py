"""Routes of the administration port that are not part of the administration API."""

from __future__ import annotations

from dataclasses import dataclass

from servicebus_emulator.admin.access_control import Handler

__all__ = ["Route"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A handler for a method and a path.

    :ivar public: whether it needs no token; otherwise see :mod:`servicebus_emulator.admin.access_control`.
    """

    method: str
    path: str
    handler: Handler
    public: bool = False
