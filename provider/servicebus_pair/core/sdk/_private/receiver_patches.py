"""Receiving without four limitations of azure-servicebus (7.15), each of which affects draining a backlog.

- *An undecodable message* (a decimal out of range or a char, both valid AMQP) closes the receiver before the message
  is returned, and is delivered again for ever. :func:`patch_receiver` returns a placeholder, which can be
  dead-lettered.
- *A message that arrives between two receive calls* is released by the SDK, then received and billed again. The patch
  keeps it for the next call; there are never more than one call requested. Since their locks are running, a call that
  starts with some (:func:`has_buffered_messages`) should wait for more only briefly.
- *A waiting receive can only be cancelled*, perhaps in the middle of a frame, which costs the link and leaves messages
  in transit locked. The patch polls ``should_stop`` instead.
- *Settlement* takes one round trip per message: 148 messages/s one by one and 1,936 messages/s concurrently at 5 ms
  round trip. :func:`settle_range` settles consecutive deliveries with one disposition (AMQP 1.0, section 2.7.6).
  :func:`release_ranges` releases messages like the SDK on close, with the outcome ``released``, which counts no
  delivery.

Without one of the private names, the SDK's public behaviour applies and a warning is logged.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from servicebus_pair.core.sdk._private.capabilities import first_missing_attribute

__all__ = [
    "PartialSettlementError",
    "can_settle_ranges",
    "contiguous_ranges",
    "decode_error",
    "drain_credit",
    "has_buffered_messages",
    "patch_receiver",
    "release_ranges",
    "settle_range",
]

_ACCEPTED: Final = "accepted"
_MODIFIED: Final = "modified"
_RELEASED: Final = "released"
_OF_HANDLER: Final = ("_link", "_received_messages", "do_work_async")
_OF_LINK: Final = (
    "_incoming_transfer",
    "_on_transfer",
    "_received_payload",
    "_first_frame",
    "_process_incoming_message",
)
_OF_SETTLEMENT: Final = ("_received_delivery_tags", "_pending_dispositions")
_OF_MESSAGE: Final = ("_delivery_id", "_delivery_tag")
_UNPATCHED: Final = (
    "messages that arrive between two receives are received twice, and a message that the SDK cannot decode blocks "
    "its queue"
)
_LOCKED_ON_STOP: Final = "messages that a stopping syphon releases may be locked again, for one lock duration"
_ONE_BY_ONE: Final = "messages are settled one by one, so draining is slower"
# Positions in the SDK's tuple form of a transfer frame (AMQP 1.0, section 2.7.5).
_MORE: Final = 5
_PAYLOAD: Final = 11


class PartialSettlementError(Exception):
    """Settling a range failed after the service had confirmed part of it.

    :ivar confirmed: ``id()`` of each confirmed message.
    """

    def __init__(self, confirmed: frozenset[int]) -> None:
        super().__init__(f"{len(confirmed)} settlements of the range were confirmed, the others not")
        self.confirmed = confirmed


async def patch_receiver(
    receiver: ServiceBusReceiver, *, should_stop: Callable[[], bool], on_message_bytes: Callable[[int], None]
) -> None:
    """Open ``receiver`` if needed and apply the patches of this module. Idempotent.

    :param should_stop: polled during a receive; once it is True, the receive returns what has arrived.
    :param on_message_bytes: called with the size of each arriving message, which the SDK does not keep.
    """
    await receiver.__aenter__()
    if first_missing_attribute(receiver, ("_handler",), consequence=_UNPATCHED) or first_missing_attribute(
        receiver._handler, _OF_HANDLER, consequence=_UNPATCHED
    ):
        return
    handler: Any = receiver._handler
    link = handler._link
    if (
        link is None
        or "_incoming_transfer" in vars(link)
        or first_missing_attribute(link, _OF_LINK, consequence=_UNPATCHED)
    ):
        return
    placeholder_class = _placeholder_class()
    if placeholder_class is None:
        first_missing_attribute(None, ("_pyamqp.message.Message",), consequence=_UNPATCHED)
        return
    _patch_transfers(handler, link, placeholder_class, on_message_bytes)
    if "do_work_async" not in vars(handler):
        _patch_stop(handler, should_stop)


def _placeholder_class() -> Any:
    """Return a class, in the SDK's internal form, for undecodable messages; ``None`` without that form."""
    try:
        from azure.servicebus._pyamqp.message import Message
    except ImportError:
        return None
    return type("UndecodableMessage", (Message,), {})


def _patch_transfers(handler: Any, link: Any, placeholder_class: Any, on_message_bytes: Callable[[int], None]) -> None:
    """Make ``link`` buffer messages that arrive between receives, and replace undecodable ones by a placeholder."""
    incoming_transfer = link._incoming_transfer

    async def buffer(frame: Any, message: Any) -> None:
        handler._received_messages.put((frame, message))

    async def transfer(frame: Any) -> None:
        if not frame[_MORE]:
            on_message_bytes(len(link._received_payload) + len(frame[_PAYLOAD]))
        try:
            await incoming_transfer(frame)
        except (OSError, AttributeError):
            raise  # a failure of the connection, not of the decoder
        except Exception as error:  # noqa: BLE001 - the decoder raises all kinds
            link._received_payload = bytearray()
            placeholder = placeholder_class()
            placeholder.decode_error = f"{type(error).__name__}: {error}"
            await link._process_incoming_message(link._first_frame, placeholder)

    link._incoming_transfer = transfer
    link._on_transfer = buffer


def _patch_stop(handler: Any, should_stop: Callable[[], bool]) -> None:
    """Make a waiting receive of ``handler`` end once ``should_stop`` returns True."""
    work = handler.do_work_async

    async def work_until_stopped(**options: Any) -> bool:
        return not should_stop() and bool(await work(**options))

    handler.do_work_async = work_until_stopped


def has_buffered_messages(receiver: ServiceBusReceiver) -> bool:
    """Return whether messages arrived while no receive was running."""
    buffered = getattr(getattr(receiver, "_handler", None), "_received_messages", None)
    return buffered is not None and not buffered.empty()


def decode_error(received: ServiceBusReceivedMessage) -> str | None:
    """Return why ``received`` could not be decoded, or ``None`` for an ordinary message."""
    inner = getattr(received, "_message", None)
    error: str | None = getattr(inner, "decode_error", None)
    return error


def can_settle_ranges(receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]) -> bool:
    """Return whether :func:`settle_range` works with the installed SDK and the open link."""
    handler: Any = getattr(receiver, "_handler", None)
    if first_missing_attribute(handler, ("settle_messages_async", "_link"), consequence=_ONE_BY_ONE):
        return False
    link = handler._link
    # Without a link settlement fails either way; settling one by one reports it properly.
    return link is not None and not (
        first_missing_attribute(link, _OF_SETTLEMENT, consequence=_ONE_BY_ONE)
        or any(first_missing_attribute(each, _OF_MESSAGE, consequence=_ONE_BY_ONE) for each in messages[:1])
    )


def contiguous_ranges(messages: Iterable[ServiceBusReceivedMessage]) -> Iterator[list[ServiceBusReceivedMessage]]:
    """Split ``messages`` into ranges of consecutive deliveries, each of which one disposition can settle."""
    current: list[ServiceBusReceivedMessage] = []
    for message in sorted(messages, key=lambda each: each._delivery_id):
        if current and message._delivery_id != current[-1]._delivery_id + 1:
            yield current
            current = []
        current.append(message)
    if current:
        yield current


async def settle_range(
    receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage], *, complete: bool, timeout: float
) -> None:
    """Complete or abandon consecutive deliveries and wait until the service has confirmed all of them.

    :param timeout: seconds.
    :raises PartialSettlementError: some were confirmed before the failure, which is the cause.
    :raises Exception: none was confirmed.
    """
    handler: Any = receiver._handler
    link = handler._link
    if any(message._delivery_tag not in link._received_delivery_tags for message in messages):
        raise OSError("the link that delivered the messages is gone")
    details: dict[str, Any] = {} if complete else {"delivery_failed": True, "undeliverable_here": False}
    outcome = _ACCEPTED if complete else _MODIFIED
    settling = asyncio.ensure_future(
        handler.settle_messages_async(
            (messages[0]._delivery_id, messages[-1]._delivery_id),
            messages[-1]._delivery_tag,
            outcome,
            batchable=True,
            await_outcome=True,
            outcome_timeout=timeout,
            **details,
        )
    )
    try:
        # The first step registers the pending dispositions, which the SDK drops at the first failure: keep them.
        await asyncio.sleep(0)
        pending = {id(message): link._pending_dispositions.get(message._delivery_id) for message in messages}
        await settling
    except Exception as failure:
        confirmed = frozenset(each for each, record in pending.items() if _is_confirmed(record, outcome))
        if not confirmed:
            raise
        raise PartialSettlementError(confirmed) from failure
    finally:
        settling.cancel()
        # The SDK forgets only one tag per disposition.
        link._received_delivery_tags.difference_update(message._delivery_tag for message in messages)


def _is_confirmed(disposition: Any, outcome: str) -> bool:
    return disposition is not None and disposition["settled"] and outcome in (disposition["outcome"] or {})


async def drain_credit(receiver: ServiceBusReceiver) -> None:
    """Take back the link's credit and release messages in transit, as the SDK does on close.

    Otherwise released messages are delivered over the same link again at once. The next receive gives new credit.
    """
    if first_missing_attribute(receiver, ("_amqp_transport", "_handler"), consequence=_LOCKED_ON_STOP):
        return
    transport: Any = receiver._amqp_transport
    if not first_missing_attribute(transport, ("drain_and_release_messages_async",), consequence=_LOCKED_ON_STOP):
        await transport.drain_and_release_messages_async(receiver._handler)


async def release_ranges(receiver: ServiceBusReceiver, messages: Iterable[ServiceBusReceivedMessage]) -> None:
    """Release messages without counting a delivery; as on close, no confirmation is awaited."""
    await drain_credit(receiver)
    handler: Any = receiver._handler
    for each in contiguous_ranges(messages):
        await handler.settle_messages_async(
            (each[0]._delivery_id, each[-1]._delivery_id), each[-1]._delivery_tag, _RELEASED, batchable=True
        )
