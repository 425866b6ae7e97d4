"""Persistence of a namespace in an SQLite file."""

from __future__ import annotations
