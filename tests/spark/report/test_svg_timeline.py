"""Timelines have units and round ticks."""

from __future__ import annotations

import re

import pytest

from servicebus_pair.spark.report.svg_timeline import timeline
from tests.spark.support.report_pages import NOON


@pytest.mark.parametrize(
    ("step", "unit", "label"),
    [(1.0, "second", "12:00:30"), (60.0, "minute", "12:30"), (3600.0, "hour", "18 Oct"), (86_400.0, "day", "03 Dec")],
)
def test_axes_have_units_and_round_ticks(step: float, unit: str, label: str):
    plot = timeline({"primary": {0: 3, 59: 7}}, start=NOON, step=step)
    assert f"messages per {unit}" in plot
    assert f">{label}</span>" in plot
    assert re.findall(r'%">([\d.,]+)</span>', plot) == ["0", "2", "4", "6"]


def test_single_message_has_a_chart():
    plot = timeline({"primary": {0: 1}}, start=NOON, step=1.0)
    assert 'points="0.0,' in plot
    assert "1000.0" in plot
