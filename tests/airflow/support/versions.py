"""Skips of tests whose subject the installed version of Airflow lacks."""

from __future__ import annotations

from typing import Final

import pytest

from servicebus_pair.airflow_runtime.airflow_version import MISSING, has


def skip_without(feature: str) -> None:
    """Skip the running test unless the installed Airflow has a feature."""
    if not has(feature):
        pytest.skip(_reason(feature))


def needs(feature: str) -> pytest.MarkDecorator:
    """Return the mark of a test that needs a feature."""
    return pytest.mark.skipif(not has(feature), reason=_reason(feature))


def _reason(feature: str) -> str:
    since: Final = ".".join(map(str, MISSING[feature].since))
    return f"Airflow has the {MISSING[feature].name} since {since}"
