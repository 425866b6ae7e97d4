"""What people are told of recoveries: ``recovery``."""

from __future__ import annotations
