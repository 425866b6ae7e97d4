"""Reports of the Spark jobs in Chromium, on desktop and phone widths, light and dark."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.spark.support.report_pages import pages
from tests.system.pages.accessibility import contrast_problems
from tests.system.pages.browser import WIDTHS, open_browser

MIN_FONT_SIZE = 11  # CSS pixels
FONT_SIZES_SCRIPT = """
return [...document.querySelectorAll('body *')]
  .filter(e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()))
  .map(e => parseFloat(getComputedStyle(e).fontSize))
"""
AXIS_LABELS_SCRIPT = """
return [...document.querySelectorAll('.plot .x, .plot .y')].map(axis => [...axis.children]
  .map(e => e.getBoundingClientRect()).filter(r => r.width).map(r => [r.left, r.right, r.top, r.bottom]))
"""
BACKGROUND_SCRIPT = "return getComputedStyle(document.body).backgroundColor"


@pytest.mark.slow
@pytest.mark.system
def test_reports_fit_a_phone_and_dark_mode_and_load_nothing(tmp_path: Path) -> None:
    with open_browser(tmp_path / "screenshots") as chromium:
        for name, page in pages().items():
            (tmp_path / f"{name}.html").write_text(page)
            chromium.open((tmp_path / f"{name}.html").as_uri())
            for width in WIDTHS.values():
                chromium.emulate(width=width, dark=False)
                assert not chromium.overflows(), (name, width)
                assert contrast_problems(chromium) == [], (name, width)
                assert min(chromium.driver.execute_script(FONT_SIZES_SCRIPT)) >= MIN_FONT_SIZE, (name, width)
                for labels in chromium.driver.execute_script(AXIS_LABELS_SCRIPT):
                    assert not [pair for pair in combinations(labels, 2) if overlap(*pair)], (name, width)
            light = chromium.driver.execute_script(BACKGROUND_SCRIPT)
            chromium.emulate(width=WIDTHS["desktop"], dark=True)
            assert chromium.driver.execute_script(BACKGROUND_SCRIPT) != light, name
            assert contrast_problems(chromium) == [], name
            fetched = "return performance.getEntriesByType('resource').length"
            assert chromium.driver.execute_script(fetched) == 0, name
            assert chromium.console_messages() == [], name


def overlap(one: list[Any], other: list[Any]) -> bool:
    (left, right, top, bottom), (left2, right2, top2, bottom2) = one, other
    return bool(left < right2 and left2 < right and top < bottom2 and top2 < bottom)
