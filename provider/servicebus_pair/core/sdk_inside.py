"""What azure-servicebus (7.15) keeps to itself of receiving.

``encoding``, ``wire`` and ``handing_over`` are the other modules that know its inside, for sending.

Four things cannot be done from outside, and all decide how, or whether, a backlog can be drained:

- *A message that the SDK cannot decode* (a decimal out of range, a char: both are valid AMQP) ends
  its receiver before the message is handed out, and comes again, for ever. :func:`make_patient`
  has a stand-in handed out that can be dead-lettered.
- *A message that comes while no call of receive is running*, because the last one ended before all it
  had asked for was there, is released by the SDK, and so received, and billed, again. The same function
  has it kept for the next call. These are never more than one call asked for. A call that begins with some of
  them waits for more to the end of its time, while their locks run: :func:`has_kept` tells, to give it little.
- *A receive that waits can only be cancelled*, in the middle of a frame if it comes to that, which costs the
  link and leaves locked what was on its way. The same function has it ask, many times a second, whether it is
  over.
- *Settling a batch*: the public calls settle one message each and wait for each answer.
  :func:`settle_run` settles neighbours with one disposition, as AMQP 1.0 (section 2.7.6) provides and
  Microsoft's own AMQP library does. :func:`can_settle_runs` tells when it cannot; then the caller
  settles one by one. :func:`release_runs` gives back what nobody looked at as the SDK does when it closes: with
  ``released``, which counts no delivery.

Should a newer SDK lack one of the names, the public way is taken, and the log says so (``sdk_names``).
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusReceiver

from servicebus_pair.core.sdk_names import absent

__all__ = [
    "PartlySettledError",
    "can_settle_runs",
    "has_kept",
    "make_patient",
    "release_runs",
    "runs",
    "settle_run",
    "stop_delivery",
    "unreadable_because",
]

_COMPLETE: Final = "accepted"
_ABANDON: Final = "modified"
_RELEASE: Final = "released"
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
_IMPATIENT: Final = (
    "what comes between two receives is received twice, and a message that the SDK cannot decode stops its queue"
)
_HANDED_OUT_AGAIN: Final = "what a syphon gives back as it stops may be locked once more, for the time of a lock"
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


class PartlySettledError(Exception):
    """The settlement of a run failed, but the service confirmed some of it before.

    :ivar confirmed: the confirmed messages, by their identity.
    """

    def __init__(self, confirmed: frozenset[int]) -> None:
        super().__init__(f"{len(confirmed)} settlements of the run were confirmed, the others not")
        self.confirmed = confirmed


async def make_patient(receiver: ServiceBusReceiver, *, over: Callable[[], bool], seen: Callable[[int], None]) -> None:
    """Open ``receiver`` if needed; it keeps what comes late, and endures what cannot be decoded.

    :param over: asked while a receive waits; once it is true, the receive answers what has come.
    :param seen: told the bytes of each message that arrives, which the SDK forgets.
    """
    await receiver.__aenter__()
    if absent(receiver, ("_handler",), costs=_IMPATIENT) or absent(receiver._handler, _OF_HANDLER, costs=_IMPATIENT):
        return
    handler: Any = receiver._handler
    link = handler._link
    if link is None or "_incoming_transfer" in vars(link) or absent(link, _OF_LINK, costs=_IMPATIENT):
        return
    stand_ins = _stand_in_class()
    if stand_ins is None:
        absent(None, ("_pyamqp.message.Message",), costs=_IMPATIENT)
        return
    _endure(handler, link, stand_ins, seen)
    if "do_work_async" not in vars(handler):
        _end_when(over, handler)


def _endure(handler: Any, link: Any, stand_ins: Any, seen: Callable[[int], None]) -> None:
    """Have ``link`` keep what comes while nobody waits, and hand out a stand-in for what it cannot decode."""
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


def _end_when(over: Callable[[], bool], handler: Any) -> None:
    """Have a waiting receive of ``handler`` end once ``over`` answers so."""
    work = handler.do_work_async

    async def work_until_over(**more: Any) -> bool:
        return not over() and bool(await work(**more))

    handler.do_work_async = work_until_over


def has_kept(receiver: ServiceBusReceiver) -> bool:
    """Answer whether messages came while no call of receive was running."""
    kept = getattr(getattr(receiver, "_handler", None), "_received_messages", None)
    return kept is not None and not kept.empty()


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

    :param timeout: seconds.
    :raises PartlySettledError: some were confirmed before the failure, which is its cause.
    :raises Exception: none was confirmed.
    """
    handler: Any = receiver._handler
    link = handler._link
    if any(message._delivery_tag not in link._received_delivery_tags for message in run):
        raise OSError("the link by which the messages came is gone")
    outcome: dict[str, Any] = {} if complete else {"delivery_failed": True, "undeliverable_here": False}
    wanted = _COMPLETE if complete else _ABANDON
    settling = asyncio.ensure_future(
        handler.settle_messages_async(
            (run[0]._delivery_id, run[-1]._delivery_id),
            run[-1]._delivery_tag,
            wanted,
            batchable=True,
            await_outcome=True,
            outcome_timeout=timeout,
            **outcome,
        )
    )
    try:
        # Its first step notes the outcomes awaited, in records that it forgets with the first bad one: kept here.
        await asyncio.sleep(0)
        records = {id(message): link._pending_dispositions.get(message._delivery_id) for message in run}
        await settling
    except Exception as failure:
        confirmed = frozenset(each for each, record in records.items() if _is_confirmed(record, wanted))
        if not confirmed:
            raise
        raise PartlySettledError(confirmed) from failure
    finally:
        settling.cancel()
        # The SDK forgets one tag per disposition.
        link._received_delivery_tags.difference_update(message._delivery_tag for message in run)


def _is_confirmed(record: Any, wanted: str) -> bool:
    """Answer whether the service settled a delivery with the outcome that was asked for."""
    return record is not None and record["settled"] and wanted in (record["outcome"] or {})


async def stop_delivery(receiver: ServiceBusReceiver) -> None:
    """Take the link's credit back and give back what was on its way, as the SDK does when it closes.

    Without it, what is given back comes at once again over the same link. The next receive gives credit anew.
    """
    if absent(receiver, ("_amqp_transport", "_handler"), costs=_HANDED_OUT_AGAIN):
        return
    transport: Any = receiver._amqp_transport
    if not absent(transport, ("drain_and_release_messages_async",), costs=_HANDED_OUT_AGAIN):
        await transport.drain_and_release_messages_async(receiver._handler)


async def release_runs(receiver: ServiceBusReceiver, messages: Iterable[ServiceBusReceivedMessage]) -> None:
    """Give messages back as if they had never been delivered; as on closing, no answer is waited for."""
    await stop_delivery(receiver)
    handler: Any = receiver._handler
    for run in runs(messages):
        await handler.settle_messages_async(
            (run[0]._delivery_id, run[-1]._delivery_id), run[-1]._delivery_tag, _RELEASE, batchable=True
        )
