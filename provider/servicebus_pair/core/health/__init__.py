"""Health of entities: registry, prober, and failback in session order."""

from __future__ import annotations

from servicebus_pair.core.health.prober import PING_CONTENT_TYPE

__all__ = ["PING_CONTENT_TYPE"]
