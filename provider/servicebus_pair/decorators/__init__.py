"""Task decorators, one module each: ``servicebus_send``."""

from __future__ import annotations
