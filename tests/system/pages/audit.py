"""What keeps somebody from using the page who cannot see it well, or not at all, or has no mouse (WCAG 2.2, level AA).

Chromium itself says what a screen reader hears (CDP, ``Accessibility.getFullAXTree``), and what is drawn how.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from selenium.webdriver.common.keys import Keys

if TYPE_CHECKING:
    from tests.system.pages.browser import Browser

__all__ = ["drawn", "heard", "in_motion", "keyboard", "laid_out"]

CONTROLS: Final = frozenset(
    {"button", "link", "checkbox", "textbox", "spinbutton", "combobox", "DisclosureTriangle", "radio", "progressbar"}
)
NAMED: Final = CONTROLS | {"image", "img", "dialog", "navigation", "table", "region", "heading", "Iframe"}
MOST_STOPS: Final = 300

DRAWN: Final = (Path(__file__).parent / "drawn.js").read_text()
# 2.3.3: what still moves, or would.
MOTION: Final = """
return [...document.querySelectorAll("*")].filter((each) => {
  const style = getComputedStyle(each);
  return (style.transitionDuration + "," + style.animationDuration).split(",").some((time) => parseFloat(time) > 0);
}).map((each) => each.outerHTML.slice(0, 60));
"""
START: Final = (
    "scrollTo(0, 0); document.body.tabIndex = -1; document.body.focus(); document.body.removeAttribute('tabindex')"
)
STOP: Final = """
const at = document.activeElement;
if (at === null || at === document.body || at === document.documentElement) return null;
const style = getComputedStyle(at);
const { top, bottom, left, right } = at.getBoundingClientRect();
return {
  name: at.outerHTML.slice(0, 80),
  order: [...document.querySelectorAll("*")].indexOf(at),
  ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2,
  seen: top < innerHeight && bottom > 0 && left < innerWidth && right > 0,
};
"""
STOPS: Final = """
return [...document.querySelectorAll("a[href], button, input, select, textarea, summary, iframe")]
  .filter((each) => each.checkVisibility() && !each.disabled && each.tabIndex >= 0).length;
"""


def heard(looking: Browser) -> list[str]:
    """What a screen reader meets and cannot name (4.1.2)."""
    return [
        f"no name: {_role(node)} {_told(node)}" for node in _nodes(looking) if _role(node) in NAMED and not _name(node)
    ]


def laid_out(looking: Browser) -> list[str]:
    """What a screen reader cannot find its way by: landmarks, headings, title and language (1.3.1, 2.4.2, 3.1.1)."""
    nodes = _nodes(looking)
    roles = [_role(node) for node in nodes]
    wrong = [f"{roles.count(role)} of {role}" for role in ("main", "banner") if roles.count(role) != 1]
    wrong += _levels(nodes)
    for script in ("document.title", "document.documentElement.lang"):
        if not looking.driver.execute_script(f"return {script}"):
            wrong.append(f"no {script}")
    return wrong


def _nodes(looking: Browser) -> list[Mapping[str, Any]]:
    return [node for node in looking.command("Accessibility.getFullAXTree")["nodes"] if not node["ignored"]]


def _levels(nodes: list[Mapping[str, Any]]) -> Iterator[str]:
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


def _told(node: Mapping[str, Any]) -> str:
    return " ".join(f"{each['name']}={each['value'].get('value')}" for each in node.get("properties", ()))


def drawn(looking: Browser, *, selector: str = "body") -> list[str]:
    """Texts that do not stand out from their ground (1.4.3), and controls that are hard to hit (2.5.8)."""
    found: list[str] = looking.driver.execute_script(DRAWN, looking.find(selector))
    return found


def in_motion(looking: Browser) -> list[str]:
    """What moves although one has asked for no motion (2.3.3)."""
    looking.command("Emulation.setEmulatedMedia", features=[{"name": "prefers-reduced-motion", "value": "reduce"}])
    found: list[str] = looking.driver.execute_script(MOTION)
    looking.command("Emulation.setEmulatedMedia", features=[])
    return found


def keyboard(looking: Browser) -> list[str]:
    """Where the tabulator does not lead, or not in order, or shows not where it is (2.1.1, 2.4.3, 2.4.7, 2.4.11)."""
    looking.driver.execute_script(START)
    stops: list[dict[str, Any]] = []
    for _ in range(MOST_STOPS):
        looking.press(Keys.TAB)
        stop = looking.driver.execute_script(STOP)
        if stop is None or (stops and stop["order"] == stops[0]["order"]):
            break
        stops.append(stop)
    asked = (("no ring", "ring"), ("hidden", "seen"))
    wrong = [f"{what}: {stop['name']}" for stop in stops for what, good in asked if not stop[good]]
    if [stop["order"] for stop in stops] != sorted(stop["order"] for stop in stops):
        wrong.append("the order is another one than that of reading")
    wanted = looking.driver.execute_script(STOPS)
    return wrong if len(stops) == wanted else [*wrong, f"{len(stops)} stops of {wanted}"]
