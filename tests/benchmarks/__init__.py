"""Benchmarks: ``make bench``, or ``python -m tests.benchmarks [GROUP]...``.

A group is a module or package here, listed in :data:`GROUPS`, with a function ``measures()`` that yields each
:class:`tests.benchmarks.measure.Measure` as soon as it is known.
"""

from __future__ import annotations

from typing import Final

GROUPS: Final = ("emulator", "core", "airflow", "spark", "ui", "peers")
"""All groups, in the order in which they run."""
