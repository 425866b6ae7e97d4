"""What azure-servicebus (7.15) keeps to itself of receiving.

``encoding``, ``wire`` and ``handing_over`` are the other modules that know its inside, for sending.

Three things cannot be done from outside, and all decide how, or whether, a backlog can be drained:

- *A message that the SDK cannot decode* (a decimal out of range, a char: both are valid AMQP) ends
  its receiver before the message is handed out, and comes again, for ever. :func:`make_patient`
  has a stand-in handed out that can be dead-lettered.
- *A message that comes while no call of receive is running*, because the last one ended before all it
  had asked for was there, is released by the SDK, and so received, and billed, again. The same function
  has it kept for the next call. These are never more than one call asked for.
- *Settling a batch*: the public calls settle one message each and wait for each answer.
  :func:`settle_run` settles neighbours with one disposition, as AMQP 1.0 (section 2.7.6) provides and
  Microsoft's own AMQP library does. :func:`can_settle_runs` tells when it cannot; then the caller
  settles one by one.

Should a newer SDK lack one of the names, the public way is taken, and the log says so (``sdk_names``).
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from servicebus_pair.core.sdk_names import absent

__all__ = ["can_settle_runs", "make_patient", "runs", "settle_run", "unreadable_because"]

_COMPLETE: Final = "accepted"
_ABANDON: Final = "modified"


_OF_HANDLER: Final = ("_link", "_received_messages")
_OF_LINK: Final = (
    "_incoming_transfer",
    "_on_transfer",
    "_received_payload",
    "_first_frame",
    "_process_incoming_message",
)
_OF_SETTLEMENT: Final = ("_received_delivery_tags",)
_OF_MESSAGE: Final = ("_delivery_id", "_delivery_tag")
_IMPATIENT: Final = (
    "what comes between two receives is received twice, and a message that the SDK cannot decode stops its queue"
)
_ONE_BY_ONE: Final = "messages are settled one by one, which drains more slowly"


# Where a transfer has the field "more" (AMQP 1.0, section 2.7.5), and the SDK puts the payload.
_MORE: Final = 5
_PAYLOAD: Final = 11


def _stand_in_class() -> Any:
    """What takes the place of a message that could not be decoded, in the SDK's own form; ``None`` without one."""
    try:
        from azure.servicebus._pyamqp.message import Message
    except ImportError:
        return None
    return type("StandIn", (Message,), {})


async def make_patient(receiver: ServiceBusReceiver, *, seen: Callable[[int], None]) -> None:
    """Open ``receiver`` if needed; it keeps what comes late, and endures what cannot be decoded.

    :param seen: told the bytes of each message that arrives, which the SDK forgets.
    """
    await receiver.__aenter__()
    if absent(receiver, ("_handler",), costs=_IMPATIENT) or absent(receiver._handler, _OF_HANDLER, costs=_IMPATIENT):
        return
    handler = receiver._handler
    link: Any = handler._link
    if link is None or "_incoming_transfer" in vars(link) or absent(link, _OF_LINK, costs=_IMPATIENT):
        return
    stand_ins = _stand_in_class()
    if stand_ins is None:
        absent(None, ("_pyamqp.message.Message",), costs=_IMPATIENT)
        return
    incoming = link._incoming_transfer

    async def keep(frame: Any, message: Any) -> None:
        handler._received_messages.put((frame, message))

    async def transfer(frame: Any) -> None:
        if not frame[_MORE]:
            seen(len(link._received_payload) + len(frame[_PAYLOAD]))
        try:
            await incoming(frame)
        except (OSError, AttributeError):
            raise  # the connection, not the message
        except Exception as error:  # noqa: BLE001 - whatever the decoder stumbles over
            link._received_payload = bytearray()
            stand_in = stand_ins()
            stand_in.because = f"{type(error).__name__}: {error}"
            await link._process_incoming_message(link._first_frame, stand_in)

    link._incoming_transfer = transfer
    link._on_transfer = keep


def unreadable_because(received: ServiceBusReceivedMessage) -> str | None:
    """Answer why ``received`` could not be decoded, or ``None`` for an ordinary message."""
    inner = getattr(received, "_message", None)
    because: str | None = getattr(inner, "because", None)
    return because


def can_settle_runs(receiver: ServiceBusReceiver, messages: Sequence[ServiceBusReceivedMessage]) -> bool:
    """Answer whether the SDK at hand has what :func:`runs` and :func:`settle_run` need."""
    handler = getattr(receiver, "_handler", None)
    if absent(handler, ("settle_messages_async", "_link"), costs=_ONE_BY_ONE):
        return False
    link: Any = handler._link  # type: ignore[union-attr]  # it has one
    # Without a link there is nothing to settle over, which settling one by one finds out.
    return link is not None and not (
        absent(link, _OF_SETTLEMENT, costs=_ONE_BY_ONE)
        or any(absent(message, _OF_MESSAGE, costs=_ONE_BY_ONE) for message in messages[:1])
    )


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
