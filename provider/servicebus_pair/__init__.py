"""Paired namespaces for Azure Service Bus: keep sending while a namespace is down."""

from __future__ import annotations

__version__ = "0.1.0.dev0"
