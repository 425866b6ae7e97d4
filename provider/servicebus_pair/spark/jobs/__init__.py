"""Programs that spark-submit runs."""

from __future__ import annotations
