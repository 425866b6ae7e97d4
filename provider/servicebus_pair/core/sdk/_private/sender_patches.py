"""Sending what is already encoded, which azure-servicebus (7.15) cannot do.

Encoding is most of the client's work for a single message. We encode it to know its size; the SDK would encode it
again, and its frame twice, once to measure it. :func:`patch_sender` makes an open link write our bytes into one frame.
A message that does not fit one frame takes the SDK's path, and so does everything after the SDK reopened the link by
itself: an :class:`EncodedMessage` is a complete message of the SDK.

Used only where ``capabilities.fast_path()`` is true; so private names are imported on use.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

from azure.servicebus.aio import ServiceBusSender

if TYPE_CHECKING:
    from servicebus_pair.core.sdk._private.message_encoding import EncodedMessage

__all__ = ["patch_sender", "send_preencoded"]

# AMQP 1.0, section 3.2.16: the only message format of a single message.
_MESSAGE_FORMAT: Final = 0
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
    from azure.servicebus._pyamqp.performatives import TransferFrame

    from servicebus_pair.core.sdk._private.message_encoding import EncodedMessage

    handler: Any = sender._handler
    link = handler._link
    if "_outgoing_transfer" in vars(link):
        return
    outgoing_transfer = link._outgoing_transfer

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
        frame = TransferFrame(
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
        delivery.transfer_state = SessionTransferState.OKAY
        delivery.sent = True
        return False

    link._outgoing_transfer = transfer


async def send_preencoded(sender: ServiceBusSender, message: EncodedMessage | list[Any], *, timeout: float) -> None:
    """Send a message or a batch in internal form, with the errors of the public ``send_messages``."""
    inner: Any = sender
    inner._check_live()
    await inner._do_retryable_operation(
        inner._send,
        message=_Outgoing(message),
        timeout=timeout,
        operation_requires_timeout=True,
        apply_try_timeout=True,
        require_last_exception=True,
    )
