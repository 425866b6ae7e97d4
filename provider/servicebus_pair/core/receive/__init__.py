"""Receive from entities of the primary under a lock, and wait while the primary is down."""

from __future__ import annotations

from servicebus_pair._lazy import lazy_exports

__all__ = ["UnreadableMessageError"]

__getattr__ = lazy_exports(__name__, {"message_fields": ["UnreadableMessageError"]})
