"""The functions that move messages: publish a table, drain the backlog."""

from __future__ import annotations
