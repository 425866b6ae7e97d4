"""The broker's memory on disk."""

from __future__ import annotations
