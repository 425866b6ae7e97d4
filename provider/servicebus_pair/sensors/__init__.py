"""Sensors: ``servicebus_pair``."""

from __future__ import annotations
