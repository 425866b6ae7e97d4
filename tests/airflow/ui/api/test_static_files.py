"""Contrast of the themes (WCAG 2.2, 1.4.3) and access to the page's files."""

from __future__ import annotations

import re
import sys

import pytest

from servicebus_pair.ui.api.static_files import load_static_file

STYLE = load_static_file("page.css")
assert STYLE is not None
THEMES = dict(
    zip(("light", "dark by system", "dark"), re.findall(r":root[^{]*\{([^}]*)\}", STYLE.content.decode()), strict=True)
)
TEXT_COLOURS = ["text", "muted", "primary", "backlog", "bad", "good", "warn"]
TEXT_ON_BACKGROUND = [(colour, "card") for colour in TEXT_COLOURS]
TEXT_ON_BACKGROUND += [("text", "background"), ("muted", "background"), ("muted", "hover"), ("text", "hover")]
TEXT_ON_BACKGROUND += [(kind, f"{kind}-background") for kind in ("good", "warn", "bad")] + [
    ("primary", "calm-background")
]
TEXT_ON_BACKGROUND += [(colour, f"{kind}-background") for colour in ("text", "muted") for kind in ("bad", "calm")]
TEXT_ON_BACKGROUND += [("card", "primary"), ("card", "bad"), ("background", "text")]


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize("theme", THEMES)
def test_text_contrast_is_sufficient(theme: str):
    colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", THEMES[theme]))

    contrasts = {}
    for text, background in TEXT_ON_BACKGROUND:
        darker, lighter = sorted((luminance(colours[text]), luminance(colours[background])))
        contrasts[text, background] = (lighter + 0.05) / (darker + 0.05)

    assert {pair: round(value, 2) for pair, value in contrasts.items() if value < 4.5} == {}


def test_system_and_chosen_dark_theme_are_equal():
    system, chosen = (" ".join(THEMES[name].split()) for name in ("dark by system", "dark"))

    assert system == chosen


@pytest.mark.parametrize("name", ["../plugin.py", "page.js.map", ""])
def test_only_files_of_the_page_are_served(name: str):
    assert load_static_file(name) is None


def test_names_of_other_files_are_not_kept():
    name = repr(object())
    before = sys.getrefcount(name)
    assert load_static_file(name) is None
    assert sys.getrefcount(name) == before
