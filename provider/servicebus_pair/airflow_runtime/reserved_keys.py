"""Keys that a mapping from elsewhere must not have where Airflow stores it."""

from __future__ import annotations

from typing import Final

__all__ = ["RESERVED_KEYS"]

RESERVED_KEYS: Final = frozenset({"__classname__", "__id__", "__type"})
"""Airflow's serialization takes a mapping with one of these for an object, which it makes where an XCom is read, or
refuses it."""
