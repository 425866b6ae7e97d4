"""Accessibility checks of a page (WCAG 2.2, level AA).

Chromium provides the accessibility tree (CDP, ``Accessibility.getFullAXTree``), styles and geometry.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from selenium.webdriver.common.keys import Keys

from tests.system.pages.browser import Browser

CONTROLS: Final = frozenset(
    {"button", "link", "checkbox", "textbox", "spinbutton", "combobox", "DisclosureTriangle", "radio", "progressbar"}
)
NAMED: Final = CONTROLS | {"image", "img", "dialog", "navigation", "table", "region", "heading", "Iframe"}
MAX_TAB_STOPS: Final = 300

CONTRAST_SCRIPT: Final = (Path(__file__).parent / "contrast.js").read_text()
MOTION_SCRIPT: Final = """
return [...document.querySelectorAll("*")].filter((each) => {
  const style = getComputedStyle(each);
  return (style.transitionDuration + "," + style.animationDuration).split(",").some((time) => parseFloat(time) > 0);
}).map((each) => each.outerHTML.slice(0, 60));
"""
FOCUS_START_SCRIPT: Final = (
    "scrollTo(0, 0); document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')"
)
FOCUSED_ELEMENT_SCRIPT: Final = """
const focused = document.activeElement;
if (focused === null || focused === document.body || focused === document.documentElement) return null;
const style = getComputedStyle(focused);
const { top, bottom, left, right } = focused.getBoundingClientRect();
return {
  name: focused.outerHTML.slice(0, 80),
  order: [...document.querySelectorAll("*")].indexOf(focused),
  ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
  visible: top < innerHeight && bottom > 0 && left < innerWidth && right > 0,
};
"""
TAB_STOP_COUNT_SCRIPT: Final = """
return [...document.querySelectorAll("a[href], button, input, select, textarea, summary, iframe")]
  .filter((each) => each.checkVisibility() && !each.disabled && each.tabIndex >= 0).length;
"""


def naming_problems(browser: Browser) -> list[str]:
    """Elements without an accessible name (4.1.2)."""
    return [
        f"no name: {_role(node)} {_properties(node)}"
        for node in _nodes(browser)
        if _role(node) in NAMED and not _name(node)
    ]


def structure_problems(browser: Browser) -> list[str]:
    """Problems with landmarks, headings, title and language (1.3.1, 2.4.2, 3.1.1)."""
    nodes = _nodes(browser)
    roles = [_role(node) for node in nodes]
    problems = [f"{roles.count(role)} of {role}" for role in ("main", "banner") if roles.count(role) != 1]
    problems += _heading_problems(nodes)
    for script in ("document.title", "document.documentElement.lang"):
        if not browser.driver.execute_script(f"return {script}"):
            problems.append(f"no {script}")
    return problems


def _nodes(browser: Browser) -> list[Mapping[str, Any]]:
    return [node for node in browser.command("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]


def _heading_problems(nodes: list[Mapping[str, Any]]) -> Iterator[str]:
    before = 0
    for node in nodes:
        if _role(node) != "heading":
            continue
        level = next(each["value"]["value"] for each in node["properties"] if each["name"] == "level")
        if level > before + 1:
            yield f"heading of level {level} after {before}: {_name(node)}"
        before = level


def _role(node: Mapping[str, Any]) -> str:
    return str(node["role"]["value"])


def _name(node: Mapping[str, Any]) -> str:
    return str(node.get("name", {}).get("value", "")).strip()


def _properties(node: Mapping[str, Any]) -> str:
    return " ".join(f"{each['name']}={each['value'].get('value')}" for each in node.get("properties", ()))


def contrast_problems(browser: Browser, *, selector: str = "body") -> list[str]:
    """Texts with too little contrast (1.4.3), and controls that are too small (2.5.8)."""
    found: list[str] = browser.driver.execute_script(CONTRAST_SCRIPT, browser.find(selector))
    return found


def motion_problems(browser: Browser) -> list[str]:
    """Elements that move although reduced motion is requested (2.3.3)."""
    browser.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    found: list[str] = browser.driver.execute_script(MOTION_SCRIPT)
    browser.command("Emulation.setEmulatedMedia", features=[])
    return found


def keyboard_problems(browser: Browser) -> list[str]:
    """Controls that Tab does not reach, or not in order, or without a visible focus (2.1.1, 2.4.3, 2.4.7, 2.4.11)."""
    browser.driver.execute_script(FOCUS_START_SCRIPT)
    stops: list[dict[str, Any]] = []
    for _ in range(MAX_TAB_STOPS):
        browser.press(Keys.TAB)
        stop = browser.driver.execute_script(FOCUSED_ELEMENT_SCRIPT)
        if stop is None or (stops and stop["order"] == stops[0]["order"]):
            break
        stops.append(stop)
    checks = (("no focus ring", "ring"), ("hidden", "visible"))
    problems = [f"{what}: {stop['name']}" for stop in stops for what, good in checks if not stop[good]]
    if [stop["order"] for stop in stops] != sorted(stop["order"] for stop in stops):
        problems.append("the tab order differs from the document order")
    expected = browser.driver.execute_script(TAB_STOP_COUNT_SCRIPT)
    return problems if len(stops) == expected else [*problems, f"{len(stops)} tab stops of {expected}"]
