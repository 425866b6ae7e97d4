"""Parses XML without entities and serializes it without prefixes.

Some clients ignore XML namespaces and compare bare names, so documents have ``xmlns`` attributes and unprefixed
elements, as those of the service.
"""

from __future__ import annotations

from typing import Final, NoReturn
from xml.etree.ElementTree import Element, SubElement, TreeBuilder, tostring
from xml.parsers import expat

ATOM: Final = "http://www.w3.org/2005/Atom"
SERVICE_BUS: Final = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"
COUNTS: Final = "http://schemas.microsoft.com/netservices/2011/06/servicebus"
DURATIONS: Final = "http://schemas.microsoft.com/2003/10/Serialization/"
SCHEMA: Final = "http://www.w3.org/2001/XMLSchema"
SCHEMA_INSTANCE: Final = "http://www.w3.org/2001/XMLSchema-instance"

_MAX_DEPTH: Final = 32


class MarkupError(ValueError):
    """A document is not XML, or uses what no description needs: a document type, entities, deep nesting."""


def parse(document: bytes) -> Element:
    """Parse an XML document; names have the form ``{namespace}name``.

    A document type is refused, and with it every entity that a document could define or fetch.

    :param document: the document, whose size the caller limits.
    :raises MarkupError: the document is not well-formed, has a document type or is nested too deeply.
    """
    builder = TreeBuilder()
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _MAX_DEPTH:
            raise MarkupError(
                f"elements are nested deeper than {_MAX_DEPTH}; allowed: an Atom entry with one description"
            )
        builder.start(_clark(tag), {_clark(name): value for name, value in attributes.items()})

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(_clark(tag))

    def refuse_document_type(*_: object) -> NoReturn:
        raise MarkupError("the document declares a document type; allowed: XML without DOCTYPE and entities")

    parser = expat.ParserCreate(namespace_separator="}")
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = builder.data
    parser.StartDoctypeDeclHandler = refuse_document_type
    try:
        parser.Parse(document, True)  # noqa: FBT003 - expat takes the flag "final" by position only
    except MarkupError:
        raise
    except (expat.ExpatError, LookupError, ValueError) as error:  # the last two: unsupported encodings
        raise MarkupError(f"the document is not well-formed XML: {error}") from error
    return builder.close()


def serialize(root: Element) -> bytes:
    """Return `root` as a UTF-8 document with an XML declaration."""
    document: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return document


def leaf(parent: Element, name: str, *, text: str | None = None, **attributes: str) -> Element:
    """Append an element to `parent` and return it."""
    element = SubElement(parent, name, attributes)
    element.text = text
    return element


def local_name(element: Element) -> str:
    """Return the name of `element` without its namespace."""
    return element.tag.rpartition("}")[2]


def _clark(name: str) -> str:
    return "{" + name if "}" in name else name
