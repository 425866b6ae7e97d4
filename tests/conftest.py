from __future__ import annotations

from pathlib import Path

import pytest

# What these start is dear, and shared by the tests of a file: a Java virtual machine, Airflow's database, processes.
_TOGETHER = frozenset({"airflow", "spark", "system"})


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the tests of some folders run file by file, and all others wherever there is room."""
    here = Path(__file__).parent
    for item in items:
        path = item.path.relative_to(here)
        if path.parts[0] in _TOGETHER:
            item.add_marker(pytest.mark.xdist_group(str(path)))
