"""The pages of Spark's jobs are read on a desk and on a telephone, light and dark, in a real Chromium."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.spark.reports import pages
from tests.system.pages.audit import drawn
from tests.system.pages.browser import SIZES, browser

SMALLEST = 11  # CSS pixels
TEXTS = """
return [...document.querySelectorAll('body *')]
  .filter(e => [...e.childNodes].some(n => n.nodeType == 3 && n.data.trim()))
  .map(e => parseFloat(getComputedStyle(e).fontSize))
"""
LABELS = """
return [...document.querySelectorAll('.plot .x, .plot .y')].map(axis => [...axis.children]
  .map(e => e.getBoundingClientRect()).filter(r => r.width).map(r => [r.left, r.right, r.top, r.bottom]))
"""
GROUND = "return getComputedStyle(document.body).backgroundColor"


@pytest.mark.slow
@pytest.mark.system
def test_reports_fit_a_telephone_and_the_dark_and_nothing_is_fetched_or_refused(tmp_path: Path) -> None:
    with browser(tmp_path / "pictures") as chromium:
        for name, page in pages().items():
            (tmp_path / f"{name}.html").write_text(page)
            chromium.open((tmp_path / f"{name}.html").as_uri())
            for width in SIZES.values():
                chromium.shape(width=width, dark=False)
                assert not chromium.overflows(), (name, width)
                assert drawn(chromium) == [], (name, width)
                assert min(chromium.driver.execute_script(TEXTS)) >= SMALLEST, (name, width)
                for labels in chromium.driver.execute_script(LABELS):
                    assert not [pair for pair in combinations(labels, 2) if overlap(*pair)], (name, width)
            light = chromium.driver.execute_script(GROUND)
            chromium.shape(width=SIZES["desk"], dark=True)
            assert chromium.driver.execute_script(GROUND) != light, name
            assert drawn(chromium) == [], name
            fetched = "return performance.getEntriesByType('resource').length"
            assert chromium.driver.execute_script(fetched) == 0, name
            assert chromium.logged() == [], name


def overlap(one: list[Any], other: list[Any]) -> bool:
    (left, right, top, bottom), (left2, right2, top2, bottom2) = one, other
    return bool(left < right2 and left2 < right and top < bottom2 and top2 < bottom)
