"""Refuses what takes far more memory than a message may, in azure-servicebus (7.15).

*Arrays.* An element of some types has no bytes, and the SDK believes the number of elements up to 65,536: a message of
100 KB with many such arrays becomes gigabytes of objects, and holds the event loop for minutes in every process that
peeks or receives it. Whoever may send a message could stop them all.

*Messages without an end.* The SDK collects the parts of a message, or of an answer, until the last one comes. A
namespace that sends none would take all memory of whoever receives from it.

*Messages that were not asked for.* The SDK keeps each message that arrives, whatever credit the link gave. One that
reads while it waits for something else, such as a confirmation, would keep all that a hostile namespace can send.

*Messages of millions of values.* The SDK decodes a message at once: one of 100 MB of empty values holds the event loop
for half a minute.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from typing import Any, Final

from servicebus_pair.core.protocol.amqp_sections import count_values

MAX_ELEMENTS_WITHOUT_BYTES: Final = 16
"""How many null, true, false, 0 or empty lists an array may hold that writes them without any bytes."""
# The service takes messages of up to 100 MB.
_MAX_MESSAGE_BYTES: Final = 128 * 2**20
# Every connection has a link for the answers to its tokens: a status and a sentence.
_AUTHORIZATION: Final = "$cbs"
_MAX_AUTHORIZATION_BYTES: Final = 2**20
# More than anything here asks for at once.
_MAX_CREDIT: Final = 5_000
# Smaller messages are decoded in less than half a second, whatever they are.
_SMALL_MESSAGE_BYTES: Final = 2**20
_MAX_VALUES: Final = 1_000_000
# Position in the SDK's tuple form of a transfer frame (AMQP 1.0, section 2.7.5).
_PAYLOAD: Final = 11
_ARRAY8: Final = 0xE0
_ARRAY32: Final = 0xF0
_DESCRIBED: Final = 0x00
_SHORT: Final = Struct(">BB")
_LONG: Final = Struct(">II")
# The bytes after the constructor of a descriptor: a symbol begins with its length.
_DESCRIPTOR_SIZES: Final = {0x44: 0, 0x53: 1, 0x80: 8}
_SYMBOL8: Final = 0xA3
# The constructors of types without bytes begin with this half byte.
_WITHOUT_BYTES: Final = 0x4

Decoder = Callable[..., Any]


@cache
def limit_arrays() -> str | None:
    """Check each array before the SDK decodes it; done once per process.

    This guards every version whose decoder has the form of 7.15, also where nothing else of its inside is used.

    :return: why arrays are not limited, or ``None``.
    """
    try:
        from azure.servicebus._pyamqp import _decode

        decoders: Any = _decode._DECODE_BY_CONSTRUCTOR
        for constructor, header, one_null in (
            (_ARRAY8, _SHORT, b"\x02\x01\x40"),
            (_ARRAY32, _LONG, b"\x00\x00\x00\x05\x00\x00\x00\x01\x40"),
        ):
            rest, values = decoders[constructor](memoryview(one_null))
            if (bytes(rest), values) != (b"", [None]):
                return "its decoder answers differently"
            decoders[constructor] = _limited(decoders[constructor], header)
    except Exception as error:  # noqa: BLE001 - whatever another version raises, it is not the decoder that we know
        return f"its decoder differs ({type(error).__name__})"
    return None


def check_message_size(size: int, source: str = "") -> None:
    """Check the size of what has arrived of a message.

    :param source: where it is from.
    :raises ConnectionAbortedError: it is larger than any message from there; the rest of it cannot be skipped.
    """
    most = _MAX_AUTHORIZATION_BYTES if source == _AUTHORIZATION else _MAX_MESSAGE_BYTES
    if size > most:
        raise ConnectionAbortedError(f"the service sent a message of more than {most} bytes")


def check_credit(link: Any, size: int, *, given: int) -> None:
    """Check the credit of a link that gets a message; below 0 are those that were on their way while it was taken back.

    :param size: of what has arrived of the message now.
    :param given: the most that the link gave.
    :raises ConnectionAbortedError: the service sent more than it was ever asked for.
    """
    credit = link.current_link_credit
    link.unasked_bytes = 0 if credit > 0 else getattr(link, "unasked_bytes", 0) + size
    if credit < -given or link.unasked_bytes > _MAX_MESSAGE_BYTES:
        raise ConnectionAbortedError(
            f"the service sent {1 - credit} messages or {link.unasked_bytes} bytes that were not asked for"
        )


def check_values(message: bytes | memoryview) -> None:
    """Check how many values a message has, if it is a large one. :raises ValueError: too many for one event loop."""
    if len(message) > _SMALL_MESSAGE_BYTES and count_values(message, _MAX_VALUES) > _MAX_VALUES:
        raise ValueError(f"the message has more than {_MAX_VALUES} values")


@cache
def limit_messages() -> None:
    """Check each part of a message before the SDK keeps it, and each message that it decodes; done once per process."""
    from azure.servicebus._pyamqp._decode import decode_payload
    from azure.servicebus._pyamqp.aio import _receiver_async
    from azure.servicebus._pyamqp.aio._receiver_async import ReceiverLink
    from azure.servicebus._transport import _pyamqp_transport

    take: Any = ReceiverLink._incoming_transfer

    async def take_checked(link: Any, frame: Any) -> None:
        check_message_size(len(link._received_payload) + len(frame[_PAYLOAD]), link.source.address)
        check_credit(link, len(frame[_PAYLOAD]), given=_MAX_CREDIT)
        await take(link, frame)

    def decode_checked(message: Any) -> Any:
        check_values(message)
        return decode_payload(message)

    for module in (_receiver_async, _pyamqp_transport):
        setattr(module, "decode_payload", decode_checked)  # noqa: B010 - the type checker knows it as imported
    ReceiverLink._incoming_transfer = take_checked  # type: ignore[method-assign]


def _limited(decode: Decoder, header: Struct) -> Decoder:
    def decode_checked(buffer: memoryview, *depth: int) -> Any:
        _check(buffer, header)
        return decode(buffer, *depth)

    return decode_checked


def _check(buffer: memoryview, header: Struct) -> None:
    size, count = header.unpack_from(buffer)
    if count <= MAX_ELEMENTS_WITHOUT_BYTES:
        return
    # The size counts from after itself, so the count and all elements are within it.
    if not count < size <= len(buffer[header.size // 2 :]):
        raise ValueError(f"an AMQP array of {size} bytes says that it has {count} elements")
    constructor = buffer[header.size]
    if constructor == _DESCRIBED:
        constructor = buffer[_after_descriptor(buffer, header.size + 1)]
    if constructor >> 4 == _WITHOUT_BYTES:
        raise ValueError(
            f"an AMQP array has {count} elements without bytes; allowed: up to {MAX_ELEMENTS_WITHOUT_BYTES}"
        )


def _after_descriptor(buffer: memoryview, start: int) -> int:
    kind = buffer[start]
    if kind == _SYMBOL8:
        return start + 2 + buffer[start + 1]
    size = _DESCRIPTOR_SIZES.get(kind)
    if size is None:
        raise ValueError(f"an AMQP array has a descriptor of type 0x{kind:02x}; allowed: a number or a symbol")
    return start + 1 + size
