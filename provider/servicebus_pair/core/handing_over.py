"""What azure-servicebus (7.15) keeps to itself of sending: taking a message that is encoded already.

A send of one message spends most of what the client has to do on encoding. The sender has encoded
it, to know its size; the SDK would do so again, and encode the frame around it twice, once to learn
how much room that takes. :func:`takes_encoded` has an open link put the bytes at hand into one
frame. What does not fit one frame, or is not such a message, goes the SDK's way. So does everything
on a link that the SDK opens anew by itself: a :class:`EncodedMessage` is the whole message, too.

Should a newer SDK lack one of the names, the public way is taken, and the log says so (``sdk_names``).
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

import struct
from typing import Any, Final

from azure.core.settings import settings
from azure.servicebus.aio import ServiceBusSender

from servicebus_pair.core.sdk_names import absent
from servicebus_pair.core.wire import EncodedMessage

__all__ = ["send_encoded", "takes_encoded"]

_TWICE: Final = "a message that is sent alone is encoded twice, which makes sending one by one slower"
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
# AMQP 1.0, part 3.2.16: the only one there is for a single message.
_MESSAGE_FORMAT: Final = 0
# More than the performative of a transfer with a short tag takes, and the frame's header.
_BESIDE_PAYLOAD: Final = 256


class _Carrier:
    """What the SDK's transport takes: anything that has a message in its inner form."""

    __slots__ = ("_message",)

    def __init__(self, message: EncodedMessage) -> None:
        self._message = message


def _sdk_parts() -> tuple[Any, Any, Any] | None:
    """The SDK's form of a transfer, and the states in which one may be and has been sent; ``None`` without one."""
    try:
        from azure.servicebus._pyamqp.constants import SessionState, SessionTransferState
        from azure.servicebus._pyamqp.performatives import TransferFrame
    except ImportError:
        return None
    return TransferFrame, SessionState.MAPPED, SessionTransferState.OKAY


def takes_encoded(sender: ServiceBusSender) -> bool:
    """Have an open ``sender`` take encoded messages; answer whether it does.

    It does not while tracing is on: what that adds to a message, the SDK adds while it encodes.
    """
    if settings.tracing_implementation() is not None:
        return False
    link: Any = _link(sender)
    if link is None:
        return False
    if "_outgoing_transfer" in vars(link):
        return True
    parts = _sdk_parts()
    if parts is None:
        absent(None, ("_pyamqp.performatives.TransferFrame",), costs=_TWICE)
        return False
    frame_of, mapped, okay = parts
    outgoing = link._outgoing_transfer

    async def transfer(delivery: Any) -> Any:
        message, session = delivery.message, link._session
        if (
            not isinstance(message, EncodedMessage)
            or len(message.encoded) + _BESIDE_PAYLOAD > session._connection._remote_max_frame_size
            or session.state is not mapped
            or session.remote_incoming_window <= 0
            or delivery.settled
            or link.network_trace
        ):
            return await outgoing(delivery)
        count = link.delivery_count + 1
        # By its number the disposition finds the delivery.
        delivery.frame = {"delivery_id": session.next_outgoing_id}
        frame = frame_of(
            handle=link.handle,
            delivery_id=session.next_outgoing_id,
            delivery_tag=struct.pack(">I", count),
            message_format=_MESSAGE_FORMAT,
            settled=False,
            more=False,
            payload=message.encoded,
        )
        await session._connection._process_outgoing_frame(session.channel, frame)
        session.next_outgoing_id += 1
        session.remote_incoming_window -= 1
        session.outgoing_window -= 1
        link.delivery_count = count
        link.current_link_credit -= 1
        delivery.transfer_state = okay
        delivery.sent = True
        return False

    link._outgoing_transfer = transfer
    return True


def _link(sender: ServiceBusSender) -> Any:
    """The link of an open sender, if it has all that is used of it; else ``None``."""
    if absent(sender, _OF_SENDER, costs=_TWICE) or absent(sender._handler, ("_link",), costs=_TWICE):
        return None
    link: Any = sender._handler._link
    if absent(link, _OF_LINK, costs=_TWICE) or absent(link._session, _OF_SESSION, costs=_TWICE):
        return None
    return None if absent(link._session._connection, _OF_CONNECTION, costs=_TWICE) else link


async def send_encoded(sender: ServiceBusSender, message: EncodedMessage, *, timeout: float) -> None:
    """Send a message as ``send_messages`` of a sender that :func:`takes_encoded` would, with the same errors.

    :param timeout: seconds.
    """
    inside: Any = sender
    inside._check_live()
    await inside._do_retryable_operation(
        inside._send,
        message=_Carrier(message),
        timeout=timeout,
        operation_requires_timeout=True,
        apply_try_timeout=True,
        require_last_exception=True,
    )
