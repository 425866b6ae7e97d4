"""Links from a task to where more is known of its pair."""

from __future__ import annotations
