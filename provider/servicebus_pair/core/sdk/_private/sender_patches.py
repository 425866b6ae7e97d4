"""Sending a message that is already encoded, which azure-servicebus (7.15) cannot do.

Encoding is most of the client's work for a single message. We encode it to know its size; the SDK would encode it
again, and its frame twice, once to measure it. :func:`patch_sender` makes an open link write our bytes into one frame.
A message that does not fit one frame takes the SDK's path, and so does everything after the SDK reopened the link by
itself: an :class:`EncodedMessage` is a complete message of the SDK.

Without one of the private names, the SDK's public behaviour applies and a warning is logged.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

import struct
from typing import Any, Final

from azure.core.settings import settings
from azure.servicebus.aio import ServiceBusSender

from servicebus_pair.core.sdk._private.batch_encoding import EncodedMessage
from servicebus_pair.core.sdk._private.capabilities import first_missing_attribute

__all__ = ["patch_sender", "send_preencoded"]

_ENCODED_TWICE: Final = "a single message is encoded twice, so sending one by one is slower"
_OF_SENDER: Final = ("_handler", "_check_live", "_do_retryable_operation", "_send")
_OF_LINK: Final = (
    "_outgoing_transfer",
    "_session",
    "handle",
    "delivery_count",
    "current_link_credit",
    "network_trace",
)
_OF_SESSION: Final = (
    "_connection",
    "channel",
    "state",
    "next_outgoing_id",
    "remote_incoming_window",
    "outgoing_window",
)
_OF_CONNECTION: Final = ("_process_outgoing_frame", "_remote_max_frame_size")
# AMQP 1.0, section 3.2.16: the only message format of a single message.
_MESSAGE_FORMAT: Final = 0
# Upper bound of the frame header and the transfer performative with a short delivery tag.
_FRAME_OVERHEAD: Final = 256


class _OutgoingMessage:
    """The argument of the SDK's ``_send``: any object with a message in internal form."""

    __slots__ = ("_message",)

    def __init__(self, message: EncodedMessage) -> None:
        self._message = message


def _sdk_names() -> tuple[Any, Any, Any] | None:
    """Return the SDK's transfer frame and the states before and after a transfer; ``None`` if one is missing."""
    try:
        from azure.servicebus._pyamqp.constants import SessionState, SessionTransferState
        from azure.servicebus._pyamqp.performatives import TransferFrame
    except ImportError:
        return None
    return TransferFrame, SessionState.MAPPED, SessionTransferState.OKAY


def patch_sender(sender: ServiceBusSender) -> bool:
    """Make an open ``sender`` accept encoded messages; return whether it does. Idempotent.

    It does not while tracing is on, because the SDK adds the trace context while it encodes.
    """
    if settings.tracing_implementation() is not None:
        return False
    link: Any = _patchable_link(sender)
    if link is None:
        return False
    if "_outgoing_transfer" in vars(link):
        return True
    names = _sdk_names()
    if names is None:
        first_missing_attribute(None, ("_pyamqp.performatives.TransferFrame",), consequence=_ENCODED_TWICE)
        return False
    transfer_frame, mapped, okay = names
    outgoing_transfer = link._outgoing_transfer

    async def transfer(delivery: Any) -> Any:
        message, session = delivery.message, link._session
        if (
            not isinstance(message, EncodedMessage)
            or len(message.encoded) + _FRAME_OVERHEAD > session._connection._remote_max_frame_size
            or session.state is not mapped
            or session.remote_incoming_window <= 0
            or delivery.settled
            or link.network_trace
        ):
            return await outgoing_transfer(delivery)
        delivery_count = link.delivery_count + 1
        # The disposition finds its delivery by this id.
        delivery.frame = {"delivery_id": session.next_outgoing_id}
        frame = transfer_frame(
            handle=link.handle,
            delivery_id=session.next_outgoing_id,
            delivery_tag=struct.pack(">I", delivery_count),
            message_format=_MESSAGE_FORMAT,
            settled=False,
            more=False,
            payload=message.encoded,
        )
        await session._connection._process_outgoing_frame(session.channel, frame)
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        session.outgoing_window -= 1
        link.delivery_count = delivery_count
        link.current_link_credit -= 1
        delivery.transfer_state = okay
        delivery.sent = True
        return False

    link._outgoing_transfer = transfer
    return True


def _patchable_link(sender: ServiceBusSender) -> Any:
    """Return the link of an open sender, or ``None`` if the SDK lacks a name that the patch uses."""
    if first_missing_attribute(sender, _OF_SENDER, consequence=_ENCODED_TWICE):
        return None
    handler: Any = sender._handler
    if first_missing_attribute(handler, ("_link",), consequence=_ENCODED_TWICE):
        return None
    link = handler._link
    if first_missing_attribute(link, _OF_LINK, consequence=_ENCODED_TWICE) or first_missing_attribute(
        link._session, _OF_SESSION, consequence=_ENCODED_TWICE
    ):
        return None
    connection = link._session._connection
    return None if first_missing_attribute(connection, _OF_CONNECTION, consequence=_ENCODED_TWICE) else link


async def send_preencoded(sender: ServiceBusSender, message: EncodedMessage, *, timeout: float) -> None:
    """Send one message over a patched sender, with the errors of the public ``send_messages``."""
    inner: Any = sender
    inner._check_live()
    await inner._do_retryable_operation(
        inner._send,
        message=_OutgoingMessage(message),
        timeout=timeout,
        operation_requires_timeout=True,
        apply_try_timeout=True,
        require_last_exception=True,
    )
