"""Command-line programs for spark-submit; the functions that they call are in ``transfer`` and ``analysis``."""

from __future__ import annotations
