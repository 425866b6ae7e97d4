"""Application properties of an encoded message, changed by the broker; all else keeps its bytes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from servicebus_emulator.amqp.encoding import (
    MalformedValueError,
    compound_items,
    decode_text,
    encode_compound,
    encode_string,
)
from servicebus_emulator.amqp.sections import Code, sections
from servicebus_emulator.engine.errors import InvalidArgument

if TYPE_CHECKING:
    from servicebus_emulator.engine.message import Content
    from servicebus_emulator.engine.queue import MessageQueue

__all__ = ["amend", "named", "with_application_properties"]

_MAP: Final = 0xC1
_APPLICATION_PROPERTIES: Final = b"\x00\x53\x74"


def named(items: Sequence[bytes]) -> dict[str, bytes]:
    """Return encoded values by their names.

    :param items: encoded names and values, in turn, as the client wrote them; what is not named by a text is left out.
    :raises InvalidArgument: when a name is not UTF-8.
    """
    try:
        pairs = [(decode_text(name), value) for name, value in zip(items[::2], items[1::2], strict=False)]
    except MalformedValueError as error:
        raise InvalidArgument(f"a property to modify has no name: {error}") from error
    return {name: value for name, value in pairs if name is not None}


def amend(queue: MessageQueue, token: bytes, *, wanted: Mapping[str, bytes]) -> None:
    """Set application properties of a locked message, as a client may that gives it back.

    :param wanted: encoded values by name.
    :raises MessageLockLost: when the message is not locked any longer.
    """
    if len(wanted) > 0:
        added = [each for name, value in wanted.items() for each in (encode_string(name), value)]
        queue.amend(token, partial(_amended, names=wanted.keys(), added=added))


def with_application_properties(data: bytes, *, names: Collection[str], added: Sequence[bytes]) -> bytes:
    """Return the sections of a message without the named application properties and with others.

    :param names: of those that are taken out.
    :param added: encoded names and values, in turn.
    """
    before, after, items = 0, 0, list[bytes]()
    for code, start, begins, end in sections(data):
        if code == Code.PROPERTIES:
            before = after = end
        elif code == Code.APPLICATION_PROPERTIES:
            items = compound_items(data[begins:end])
            before, after = start, end
    kept: list[bytes] = []
    # strict=False: a key without a value, which no client sends, must not make the message undeliverable.
    for key, value in zip(items[::2], items[1::2], strict=False):
        if decode_text(key) not in names:
            kept += (key, value)
    kept += added
    properties = _APPLICATION_PROPERTIES + encode_compound(_MAP, body=b"".join(kept), count=len(kept))
    return data[:before] + properties + data[after:]


def _amended(content: Content, *, names: Collection[str], added: Sequence[bytes]) -> Content:
    return content._replace(sections=with_application_properties(content.sections, names=names, added=added))
