"""The Atom documents of the administration API: entries, feeds, errors, the namespace's own entry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4
from xml.etree.ElementTree import Element

from servicebus_emulator.admin.atom.fields import format_time
from servicebus_emulator.admin.atom.xml import ATOM, SCHEMA_INSTANCE, SERVICE_BUS, MarkupError, leaf, serialize
from servicebus_emulator.engine.model.tracking import tracked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One entry of a document.

    :ivar title: name of the resource.
    :ivar address: URL of the resource.
    :ivar content: the element with its description.
    """

    title: str
    address: str
    published: datetime
    updated: datetime
    content: Element


def entry_document(entry: Entry, *, author: str) -> bytes:
    """Return the document of one entry.

    :param author: the name of the namespace.
    """
    return serialize(_entry(entry, author=author, base=None))


def feed_document(
    entries: Sequence[Entry], *, title: str, address: str, next_address: str | None, updated: datetime, author: str
) -> bytes:
    """Return the document of one page of a list.

    The official clients request another page if and only if the feed has two links.

    :param next_address: the URL of the next page; None = this is the last one.
    """
    feed = Element("feed", {"xmlns": ATOM})
    leaf(feed, "title", text=title, type="text")
    leaf(feed, "id", text=address)
    leaf(feed, "updated", text=_seconds(updated))
    leaf(feed, "link", rel="self", href=address)
    if next_address is not None:
        leaf(feed, "link", rel="next", href=next_address)
    feed.extend(_entry(entry, author=author, base=address) for entry in entries)
    return serialize(feed)


def nothing_document(updated: datetime) -> bytes:
    """Return what the service answers to a GET of a queue or topic that does not exist, with status 200."""
    feed = Element("feed", {"xmlns": ATOM})
    leaf(feed, "title", text="Publicly Listed Services", type="text")
    subtitle = "This is the list of publicly-listed services currently available."
    leaf(feed, "subtitle", text=subtitle, type="text")
    leaf(feed, "id", text=f"uuid:{uuid4()};id=1")
    leaf(feed, "updated", text=_seconds(updated))
    leaf(feed, "generator", text="Service Bus 1.1")
    return serialize(feed)


def error_document(status: int, *, detail: str) -> bytes:
    """Return the document of an error."""
    root = Element("Error")
    leaf(root, "Code", text=str(status))
    leaf(root, "Detail", text=tracked(detail))
    return serialize(root)


def namespace_content(name: str, *, created: datetime, tier: str) -> Element:
    """Return the ``NamespaceInfo`` element of a namespace."""
    root = Element("NamespaceInfo", {"xmlns": SERVICE_BUS, "xmlns:i": SCHEMA_INSTANCE})
    leaf(root, "CreatedTime", text=format_time(created))
    leaf(root, "MessagingSKU", text=tier)
    leaf(root, "ModifiedTime", text=format_time(created))
    leaf(root, "Name", text=name)
    leaf(root, "NamespaceType", text="Messaging")
    return root


def content_of(root: Element) -> Element:
    """Return the description in the entry of a request.

    :raises MarkupError: the document is not an Atom entry with exactly one element as its content.
    """
    content = root.find(f"{{{ATOM}}}content") if root.tag == f"{{{ATOM}}}entry" else None
    if content is None or len(content) != 1:
        raise MarkupError(f"the document is {root.tag}; allowed: an Atom entry whose content is one description")
    return content[0]


def _seconds(value: datetime) -> str:
    return format_time(value.replace(microsecond=0))


def _entry(entry: Entry, *, author: str, base: str | None) -> Element:
    element = Element("entry", {"xmlns": ATOM} if base is None else {"xml:base": base})
    leaf(element, "id", text=entry.address)
    leaf(element, "title", text=entry.title, type="text")
    leaf(element, "published", text=_seconds(entry.published))
    leaf(element, "updated", text=_seconds(entry.updated))
    leaf(leaf(element, "author"), "name", text=author)
    leaf(element, "link", rel="self", href=entry.address)
    leaf(element, "content", type="application/xml").append(entry.content)
    return element
