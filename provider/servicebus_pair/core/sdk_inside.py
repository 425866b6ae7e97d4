"""The only use of what azure-servicebus (7.15) keeps to itself; every other module stays with its public names.

Three things cannot be done from outside, and all decide how, or whether, a backlog can be drained:

- *A message that the SDK cannot decode* (a decimal out of range, a char: both are valid AMQP) ends
  its receiver before the message is handed out, and comes again, for ever. :func:`make_patient`
  has a stand-in handed out that can be dead-lettered.
- *A message that comes while no call of receive is running*, because the last one ended before all it
  had asked for was there, is released by the SDK, and so received, and billed, again. The same function
  has it kept for the next call. These are never more than one call asked for.
- *Settling a batch*: the public calls settle one message each and wait for each answer.
  :func:`settle_run` settles neighbours with one disposition, as AMQP 1.0 (section 2.7.6) provides and
  Microsoft's own AMQP library does. :func:`can_settle_runs` tells when a newer SDK has no such inside;
  then the caller settles one by one.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus._pyamqp.message import Message
from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["can_settle_runs", "make_patient", "runs", "settle_run", "unreadable_because"]

_COMPLETE: Final = "accepted"
_ABANDON: Final = "modified"


class _StandIn(Message):
    """Takes the place of a message that could not be decoded."""

    because: str


async def make_patient(receiver: ServiceBusReceiver) -> None:
    """Open ``receiver`` if needed; it keeps what comes late, and endures what cannot be decoded."""
    await receiver.__aenter__()
    handler = receiver._handler
    link = handler._link
    if link is None or "_incoming_transfer" in vars(link):
        return
    incoming = link._incoming_transfer

    async def keep(frame: Any, message: Any) -> None:
        handler._received_messages.put((frame, message))

    async def transfer(frame: Any) -> None:
        try:
            await incoming(frame)
        except (OSError, AttributeError):
            raise  # the connection, not the message
        except Exception as error:  # noqa: BLE001 - whatever the decoder stumbles over
            link._received_payload = bytearray()
            stand_in = _StandIn()
            stand_in.because = f"{type(error).__name__}: {error}"
            await link._process_incoming_message(link._first_frame, stand_in)

    link._incoming_transfer = transfer
    link._on_transfer = keep


def unreadable_because(received: ServiceBusReceivedMessage) -> str | None:
    """Answer why ``received`` could not be decoded, or ``None`` for an ordinary message."""
    inner = getattr(received, "_message", None)
    return inner.because if isinstance(inner, _StandIn) else None


def can_settle_runs(receiver: ServiceBusReceiver) -> bool:
    """Answer whether the SDK at hand has what :func:`settle_run` needs."""
    handler = getattr(receiver, "_handler", None)
    link = getattr(handler, "_link", None)
    return hasattr(handler, "settle_messages_async") and hasattr(link, "_received_delivery_tags")


def runs(messages: Iterable[ServiceBusReceivedMessage]) -> Iterator[list[ServiceBusReceivedMessage]]:
    """Split ``messages`` into runs of neighbours, each of which one disposition can settle."""
    run: list[ServiceBusReceivedMessage] = []
    for message in sorted(messages, key=lambda each: each._delivery_id):
        if run and message._delivery_id != run[-1]._delivery_id + 1:
            yield run
            run = []
        run.append(message)
    if run:
        yield run


async def settle_run(
    receiver: ServiceBusReceiver, run: Sequence[ServiceBusReceivedMessage], *, complete: bool, timeout: float
) -> None:
    """Complete or abandon a run of neighbours and wait until the service confirms all of it.

    An error says that at least one was not confirmed, without saying which.

    :param timeout: seconds.
    """
    handler = receiver._handler
    link: Any = handler._link
    if any(message._delivery_tag not in link._received_delivery_tags for message in run):
        raise OSError("the link by which the messages came is gone")
    outcome: dict[str, Any] = {} if complete else {"delivery_failed": True, "undeliverable_here": False}
    try:
        await handler.settle_messages_async(
            (run[0]._delivery_id, run[-1]._delivery_id),
            run[-1]._delivery_tag,
            _COMPLETE if complete else _ABANDON,
            batchable=True,
            await_outcome=True,
            outcome_timeout=timeout,
            **outcome,
        )
    finally:
        # The SDK forgets one tag per disposition.
        link._received_delivery_tags.difference_update(message._delivery_tag for message in run)
