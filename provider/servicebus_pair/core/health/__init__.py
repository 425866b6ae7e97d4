"""Health of entities: registry, prober, and failback in session order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from servicebus_pair._lazy import lazy_exports

if TYPE_CHECKING:
    from servicebus_pair.core.health.prober import PING_CONTENT_TYPE

__all__ = [
    "PING_CONTENT_TYPE",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "prober": ["PING_CONTENT_TYPE"],
    },
)
