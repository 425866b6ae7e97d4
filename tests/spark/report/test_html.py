"""All HTML reports escape text and are self-contained."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from tests.spark.support.report_pages import pages


class Tags(HTMLParser):
    """All elements of a page, and whether each one that was opened was closed."""

    VOID = frozenset({"meta", "line", "polygon"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", pages())
def test_names_are_escaped_and_pages_load_nothing(name: str):
    page = pages()[name]
    tags = Tags(page)
    assert not {"script", "link", "img", "iframe", "object"} & {tag for tag, _ in tags.seen}
    assert not [
        name for _, attributes in tags.seen for name in attributes if name in ("src", "href") or name[:2] == "on"
    ]
    assert not re.search(r"url\(|@import|https?:|[^\n -~\u00b7-\u2019]", page)
    assert "default-src &#x27;none&#x27;" in page or "default-src 'none'" in page


@pytest.mark.parametrize("name", pages())
def test_pages_support_dark_mode_and_narrow_screens(name: str):
    page = pages()[name]
    assert "@media(prefers-color-scheme:dark)" in page
    assert 'content="width=device-width,initial-scale=1"' in page
    assert page.count("<table>") == page.count('<div class="wide"><table>'), "wide tables scroll by themselves"
