from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.leaks import collect_leaks


@pytest.fixture
def leaks_collected() -> Iterator[None]:
    """After a test in which connections broke."""
    yield
    collect_leaks()
