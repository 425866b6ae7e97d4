from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.system.demo.processes import Processes


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    started = Processes(record=tmp_path / "processes.json", logs=tmp_path)
    try:
        yield started
    finally:
        started.stop()
