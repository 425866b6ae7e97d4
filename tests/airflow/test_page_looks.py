"""That the page can be read: the contrast of what is written on what, in both themes (WCAG 2.2, 1.4.3)."""

from __future__ import annotations

import re

import pytest

from servicebus_pair.ui.page import asset

STYLE = asset("page.css")
THEMES = dict(
    zip(("light", "dark by system", "dark"), re.findall(r":root[^{]*\{([^}]*)\}", STYLE.content.decode()), strict=True)
)  # type: ignore[union-attr]
ON_CARD = ["ink", "faint", "direct", "round", "bad", "good", "warn"]
WRITTEN = [(ink, "card") for ink in ON_CARD]
WRITTEN += [("ink", "ground"), ("faint", "ground"), ("faint", "press"), ("ink", "press")]
WRITTEN += [(kind, f"{kind}-ground") for kind in ("good", "warn", "bad")] + [("direct", "calm-ground")]
WRITTEN += [(ink, f"{kind}-ground") for ink in ("ink", "faint") for kind in ("bad", "calm")]
WRITTEN += [("card", "direct"), ("card", "bad"), ("ground", "ink")]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", THEMES)
def test_every_text_stands_out_from_its_ground(theme: str):
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", THEMES[theme]))

    contrasts = {}
    for ink, ground in WRITTEN:
        darker, lighter = sorted((luminance(colours[ink]), luminance(colours[ground])))
        contrasts[ink, ground] = (lighter + 0.05) / (darker + 0.05)

    assert {pair: round(value, 2) for pair, value in contrasts.items() if value < 4.5} == {}


def test_both_ways_to_the_dark_theme_lead_to_the_same():
    system, chosen = (" ".join(THEMES[name].split()) for name in ("dark by system", "dark"))

    assert system == chosen
