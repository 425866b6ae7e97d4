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

Used only where ``capabilities.fast_path()`` is true; so private names are imported on use.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any, Final, Literal, TypeAlias

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

_RELEASED: Final = "released"
Settlement: TypeAlias = Literal["complete", "abandon", "defer"]
_OUTCOMES: Final[Mapping[Settlement, tuple[str, Mapping[str, bool]]]] = {
    "complete": ("accepted", {}),
    "abandon": ("modified", {"delivery_failed": True, "undeliverable_here": False}),
    "defer": ("modified", {"delivery_failed": True, "undeliverable_here": True}),
}
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
    handler: Any = receiver._handler
    link = handler._link
    if link is None or "_incoming_transfer" in vars(link):
        return
    _patch_transfers(handler, link, on_message_bytes)
    if "do_work_async" not in vars(handler):
        _patch_stop(handler, should_stop)


@cache
def _placeholder_class() -> Any:
    """Return a class, in the SDK's internal form, for undecodable messages."""
    from azure.servicebus._pyamqp.message import Message

    return type("UndecodableMessage", (Message,), {})


def _patch_transfers(handler: Any, link: Any, on_message_bytes: Callable[[int], None]) -> None:
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
            placeholder = _placeholder_class()()
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


def can_settle_ranges(receiver: ServiceBusReceiver) -> bool:
    """Return whether the link is open; without one settlement fails, which settling one by one reports properly."""
    handler: Any = getattr(receiver, "_handler", None)
    return getattr(handler, "_link", None) is not None


def contiguous_ranges(messages: Iterable[ServiceBusReceivedMessage]) -> Iterator[list[ServiceBusReceivedMessage]]:
    """Split ``messages`` into ranges of consecutive deliveries, each of which one disposition can settle."""
    ordered = sorted(messages, key=lambda each: each._delivery_id)
    for _, run in groupby(enumerate(ordered), lambda each: each[1]._delivery_id - each[0]):
        yield [message for _, message in run]


async def settle_range(
    receiver: ServiceBusReceiver,
    messages: Sequence[ServiceBusReceivedMessage],
    settlement: Settlement,
    *,
    timeout: float,
) -> None:
    """Settle consecutive deliveries and wait until the service has confirmed all of them.

    :param timeout: seconds.
    :raises PartialSettlementError: some were confirmed before the failure, which is the cause.
    :raises Exception: none was confirmed.
    """
    handler: Any = receiver._handler
    link = handler._link
    if any(message._delivery_tag not in link._received_delivery_tags for message in messages):
        raise OSError("the link that delivered the messages is gone")
    outcome, details = _OUTCOMES[settlement]
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
    inner: Any = receiver
    await inner._amqp_transport.drain_and_release_messages_async(inner._handler)


async def release_ranges(receiver: ServiceBusReceiver, messages: Iterable[ServiceBusReceivedMessage]) -> None:
    """Release messages without counting a delivery; as on close, no confirmation is awaited."""
    await drain_credit(receiver)
    handler: Any = receiver._handler
    for each in contiguous_ranges(messages):
        await handler.settle_messages_async(
            (each[0]._delivery_id, each[-1]._delivery_id), each[-1]._delivery_tag, _RELEASED, batchable=True
        )
