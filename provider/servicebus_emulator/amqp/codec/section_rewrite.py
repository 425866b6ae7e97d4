"""Rewrites the application properties of an encoded message; all other sections keep their bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from servicebus_emulator.amqp.codec.raw_encoding import (
    MalformedValueError,
    compound_items,
    decode_text,
    encode_map,
    encode_string,
)
from servicebus_emulator.amqp.codec.sections import SectionCode, encode_section, sections
from servicebus_emulator.engine.model.errors import InvalidArgument

if TYPE_CHECKING:
    from servicebus_emulator.engine.model.message import Content
    from servicebus_emulator.engine.queue.queue import MessageQueue


def by_name(items: Sequence[bytes]) -> dict[str, bytes]:
    """Return encoded values by their names; entries whose name is no text are omitted.

    :param items: alternating encoded names and values, as the client encoded them.
    :raises InvalidArgument: when a name is not UTF-8.
    """
    try:
        pairs = [(decode_text(name), value) for name, value in zip(items[::2], items[1::2], strict=False)]
    except MalformedValueError as error:
        raise InvalidArgument(f"the name of a property to modify cannot be decoded: {error}") from error
    return {name: value for name, value in pairs if name is not None}


def set_application_properties(queue: MessageQueue, token: bytes, *, properties: Mapping[str, bytes]) -> None:
    """Set application properties of a locked message.

    :param token: the lock token.
    :param properties: encoded values by name.
    :raises MessageLockLost: when the message is no longer locked.
    :raises InvalidArgument: when the properties that it has cannot be decoded.
    """
    if len(properties) > 0:
        queue.modify(token, partial(with_application_properties, properties=properties))


def with_application_properties(content: Content, *, properties: Mapping[str, bytes]) -> Content:
    """Return the content with application properties set.

    :param properties: encoded values by name.
    :raises InvalidArgument: when the properties that it has cannot be decoded.
    """
    if len(properties) == 0:
        return content
    added = [each for name, value in properties.items() for each in (encode_string(name), value)]
    try:
        return content._replace(
            sections=replace_application_properties(content.sections, names=properties.keys(), added=added)
        )
    except MalformedValueError as error:
        raise InvalidArgument(f"the application properties of the message cannot be decoded: {error}") from error


def replace_application_properties(data: bytes, *, names: Collection[str], added: Sequence[bytes]) -> bytes:
    """Return the sections of a message with some application properties removed and others added.

    :param names: the names of the properties to remove.
    :param added: alternating encoded names and values.
    """
    before, after, items = 0, 0, list[bytes]()
    for code, start, begins, end in sections(data):
        if code == SectionCode.PROPERTIES:
            before = after = end
        elif code == SectionCode.APPLICATION_PROPERTIES:
            items = compound_items(data[begins:end])
            before, after = start, end
    kept: list[bytes] = []
    # strict=False: a key without a value, which no client sends, must not make the message undeliverable.
    for key, value in zip(items[::2], items[1::2], strict=False):
        if decode_text(key) not in names:
            kept += (key, value)
    kept += added
    properties = encode_section(SectionCode.APPLICATION_PROPERTIES, encode_map(kept))
    return data[:before] + properties + data[after:]
