"""Sending what is already encoded, which azure-servicebus (7.15) cannot do.

Encoding is most of the client's work for a single message. We encode it to know its size; the SDK would encode it
again, and its frame twice, once to measure it. :func:`patch_sender` makes an open link write our bytes into one frame,
and writes the fields of that frame itself, of which the SDK's encoder builds a description first.
A message that does not fit one frame takes the SDK's path, and so does everything after the SDK reopened the link by
itself: an :class:`EncodedMessage` is a complete message of the SDK.

The SDK lists every id from the first to the last one that a settlement names: 32 GB for one frame of a hostile
namespace. :func:`limit_settlements` gives it those that are pending.

Used only where ``capabilities.fast_path()`` is true; so private names are imported on use.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

import struct
from collections.abc import Awaitable
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from azure.servicebus.aio import ServiceBusSender

if TYPE_CHECKING:
    from servicebus_pair.core.sdk._private.message_encoding import EncodedMessage

# AMQP 1.0, sections 2.3.1 and 2.7.5: data offset and type of a frame; the descriptor of a transfer with a list of six
# fields; then its message format, which is 0 for a single message, and that it is neither settled nor continued.
_FRAME_TYPE: Final = b"\x02\x00"
_TRANSFER: Final = b"\x00\x53\x14\xc0"
_FIELDS: Final = 6
_REST: Final = b"\x43\x42\x42"
_pack_start: Final = struct.Struct(">I2sH4sBB").pack
# Handle, delivery id and delivery tag with their constructors: two unsigned integers and four bytes.
_pack_fields: Final = struct.Struct(">BIBIBBI").pack
_UINT: Final = 0x70
_BINARY: Final = 0xA0
_TAG_BYTES: Final = 4
_FRAME_HEADER_BYTES: Final = 8
# Positions in the SDK's tuple form of a disposition (AMQP 1.0, section 2.7.6).
_FIRST: Final = 1
_LAST: Final = 2
# Upper bound of the frame header and the transfer performative with a short delivery tag.
_FRAME_OVERHEAD: Final = 256


class _Outgoing:
    """The argument of the SDK's ``_send``: any object with a message or a batch in internal form."""

    __slots__ = ("_message",)

    def __init__(self, message: EncodedMessage | list[Any]) -> None:
        self._message = message


def patch_sender(sender: ServiceBusSender) -> None:
    """Make an open ``sender`` write encoded messages. Idempotent."""
    from azure.servicebus._pyamqp.constants import SessionState, SessionTransferState

    from servicebus_pair.core.sdk._private.message_encoding import EncodedMessage

    handler: Any = sender._handler
    link = handler._link
    if "_outgoing_transfer" in vars(link):
        return
    outgoing_transfer = link._outgoing_transfer
    _take_encoded_frames(link._session._connection._transport)

    async def transfer(delivery: Any) -> Any:
        message, session = delivery.message, link._session
        if (
            not isinstance(message, EncodedMessage)
            or len(message.encoded) + _FRAME_OVERHEAD > session._connection._remote_max_frame_size
            or session.state is not SessionState.MAPPED
            or session.remote_incoming_window <= 0
            or delivery.settled
            or link.network_trace
        ):
            return await outgoing_transfer(delivery)
        delivery_count = link.delivery_count + 1
        # The disposition finds its delivery by this id.
        delivery.frame = {"delivery_id": session.next_outgoing_id}
        frame = _transfer_frame(
            session.channel, link.handle, session.next_outgoing_id, tag=delivery_count, payload=message.encoded
        )
        await session._connection._process_outgoing_frame(session.channel, frame)
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        session.outgoing_window -= 1
        link.delivery_count = delivery_count
        link.current_link_credit -= 1
        delivery.transfer_state = SessionTransferState.OKAY
        delivery.sent = True
        return False

    link._outgoing_transfer = transfer


@cache
def limit_settlements() -> None:
    """Let the SDK settle only what is pending; done once per process."""
    from azure.servicebus._pyamqp.aio._sender_async import SenderLink

    settle: Any = SenderLink._incoming_disposition

    async def settle_pending(link: Any, frame: Any) -> None:
        first, last = frame[_FIRST], frame[_LAST] or frame[_FIRST]
        pending = link._pending_deliveries
        if found := [n for each in pending if each.sent and first <= (n := each.frame["delivery_id"]) <= last]:
            await settle(link, [*frame[:_FIRST], min(found), max(found), *frame[_LAST + 1 :]])

    SenderLink._incoming_disposition = settle_pending  # type: ignore[method-assign]


def _take_encoded_frames(transport: Any) -> None:
    """Make ``transport`` write frames that are bytes as they are. Idempotent."""
    if "send_frame" in vars(transport):
        return
    send_frame = transport.send_frame

    async def send(channel: int, frame: Any, **options: Any) -> None:
        if isinstance(frame, bytes):
            await transport.write(frame)
        else:
            await send_frame(channel, frame, **options)

    transport.send_frame = send


def _transfer_frame(channel: int, handle: int, delivery_id: int, *, tag: int, payload: bytearray) -> bytes:
    fields = _pack_fields(_UINT, handle, _UINT, delivery_id, _BINARY, _TAG_BYTES, tag) + _REST
    # The size of the list counts its count.
    performative_bytes = len(_TRANSFER) + 1 + 1 + len(fields)
    size = _FRAME_HEADER_BYTES + performative_bytes + len(payload)
    return _pack_start(size, _FRAME_TYPE, channel, _TRANSFER, len(fields) + 1, _FIELDS) + fields + payload


def send_preencoded(
    sender: ServiceBusSender, message: EncodedMessage | list[Any], *, timeout: float
) -> Awaitable[None]:
    """Send a message or a batch in internal form, with the errors of the public ``send_messages``."""
    inner: Any = sender
    inner._check_live()
    sending: Awaitable[None] = inner._do_retryable_operation(
        inner._send,
        message=_Outgoing(message),
        timeout=timeout,
        operation_requires_timeout=True,
    )
    return sending
