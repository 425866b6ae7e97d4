"""Notifications about recoveries: ``recovery``."""

from __future__ import annotations
