"""Receives encoded messages over a link of azure-servicebus (7.15), and settles them in runs.

The SDK decodes every message into objects while it reads, which takes longer than all else together. Here the payload
of each transfer stays as it is. A run of deliveries is settled with one disposition (AMQP 1.0, section 2.7.6), however
many answers the service gives. Messages that arrive between two receives are kept for the next one.

Used only where ``capabilities.fast_path()`` is true; so private names are imported on use.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from itertools import groupby
from typing import Any, Final

from servicebus_pair.core.protocol.amqp_sections import value_end
from servicebus_pair.core.protocol.byte_window import ByteWindow
from servicebus_pair.core.sdk._private.decode_limits import check_credit, check_message_size
from servicebus_pair.core.sdk._private.frame_reader import (
    FrameReader,
    check_attached,
    mapped_error,
    now,
    stop_keep_alive,
)

# The performatives that are taken, with the constructor of a list of up to 255 bytes.
_TRANSFER: Final = b"\x14\xc0"
_DISPOSITION: Final = b"\x15\xc0"
# The outcome of a completed delivery, in most answers of the service.
_ACCEPTED: Final = b"\x00\x53\x24"
_TRUE: Final = (b"\x41", b"\x56\x01")
# Positions of fields (AMQP 1.0, sections 2.7.5 and 2.7.6).
_MORE: Final = 5
# After it, sequence numbers begin again with 0 (AMQP 1.0, section 2.8.10).
_MAX_NUMBER: Final = 0xFFFF_FFFF
# Seconds. Listening ends so often, to ask whether it should stop; and a queue is silent after two such pauses.
_LISTEN: Final = 0.2
_PAUSE: Final = 0.05
_PAUSES_OF_SILENCE: Final = 2
# At least so many messages more than were asked for are taken.
_FIRST_CREDIT: Final = 100
# What is collected for so long is returned, although more comes: its locks are running.
_MAX_COLLECTING: Final = 5.0


class Settlement(Enum):
    """What a delivery is settled with, and the outcome by which the service says that it was."""

    COMPLETE = "accepted"
    DEAD_LETTER = "rejected"
    RELEASE = "released"
    ABANDON = "modified"


@dataclass(slots=True, eq=False)
class _Run:
    """Consecutive deliveries whose settlement has not been confirmed yet.

    :ivar outcomes: what the service answered for some of them; the SDK says which of that is a refusal.
    """

    first: int
    last: int
    settlement: Settlement
    unanswered: set[int]
    outcomes: dict[int, Any] = field(default_factory=dict)


class RawReceiver:
    """Takes over an open receiver of the SDK; used by one task at a time.

    :param max_bytes: about so many bytes of messages that were not returned are under way.
    :ivar receiver: that of the SDK.
    :ivar fell_silent: the last receive returned less than was asked for because nothing more came.
    """

    def __init__(self, receiver: Any, *, max_bytes: int) -> None:
        self.receiver = receiver
        self._handler = handler = receiver._handler
        self._link = handler._link
        self._session = handler._session
        self.fell_silent = False
        self._arrived: deque[tuple[int, bytes]] = deque()
        self._window = ByteWindow(max_bytes)
        # Bytes of the messages that the last receive returned: until the next one, they count.
        self._taken_bytes = 0
        # Frames that the session may bring before any size is known: so many messages fit, however large they are.
        self._first_frames = max(1, max_bytes // handler._connection._max_frame_size)
        self._session.incoming_window = self._first_frames
        self._size_known = False
        self._partial = bytearray()
        self._most_credit = _FIRST_CREDIT
        self._delivery_id = 0
        self._unconfirmed: list[_Run] = []
        self._takes = {_TRANSFER: self._take_transfer, _DISPOSITION: self._take_disposition}
        self._close = handler.close_async
        stop_keep_alive(handler)
        handler.close_async = self._release_and_close
        self._reader = FrameReader(handler._connection, self._take_frame)

    async def receive(
        self, *, max_messages: int, wait: float, should_stop: Callable[[], bool]
    ) -> list[tuple[int, bytes]]:
        """Return up to ``max_messages`` deliveries by id, once the queue is silent or their bytes are enough.

        :param wait: seconds to wait for the first message.
        :raises Exception: the SDK's, if the link is lost.
        """
        check_attached(self._handler)
        self._window.begin()
        self._window.remove(self._taken_bytes)
        self._taken_bytes = 0
        deadline = now() + wait
        pauses = 0
        self.fell_silent = False
        while len(self._arrived) < max_messages and not should_stop():
            if not await self._ask_for(max_messages - len(self._arrived)):
                break
            remaining = deadline - now()
            if self._arrived:
                self.fell_silent = pauses >= _PAUSES_OF_SILENCE
                if self.fell_silent or remaining < -_MAX_COLLECTING:
                    break
                pauses = 0 if await self._listen(_PAUSE) else pauses + 1
            elif remaining <= 0:
                break
            else:
                await self._listen(min(_LISTEN, remaining))
        taken = [self._arrived.popleft() for _ in range(min(max_messages, len(self._arrived)))]
        self._taken_bytes = sum(len(message) for _, message in taken)
        return taken

    async def request(self, count: int) -> None:
        """Ask for so many messages at once, which the next receive returns."""
        check_attached(self._handler)
        await self._ask_for(count - len(self._arrived))

    async def _ask_for(self, missing: int) -> int:
        """Adapt the link's credit, and return it: for ``missing`` messages, or fewer if they are large."""
        current = self._link.current_link_credit
        credit = self._window.credit(missing) if self._size_known else min(missing, self._first_frames)
        # What messages leave is given back once it is half of the credit, or all that is missing: each change is a
        # frame.
        if credit != current and credit not in range(current, min(2 * current, missing)):
            self._most_credit = max(self._most_credit, credit)
            await self._link.flow(link_credit=credit)
        return credit

    async def settle(
        self, ids: Iterable[int], settlement: Settlement, *, timeout: float, error: Any = None, request: int = 0
    ) -> dict[int, Exception]:
        """Settle deliveries, and return those whose settlement was not confirmed, with the reason.

        :param error: for ``DEAD_LETTER``: reason and description.
        :param request: ask for so many messages at once, which the next receive returns: they arrive while the
            confirmations do.
        """
        pending = [_Run(first, last, settlement, set(range(first, last + 1))) for first, last in runs(ids)]
        self._unconfirmed += pending
        failure: Exception = TimeoutError(f"settlements were not confirmed in {timeout:.1f} s")
        try:
            for run in pending:
                await self._dispose(run.first, run.last, settlement, error=error)
            if request:
                await self.request(request)
            deadline = now() + timeout
            while any(run.unanswered for run in pending) and (remaining := deadline - now()) > 0:
                await self._listen(min(_LISTEN, remaining))
        except Exception as caught:  # noqa: BLE001 - returned for each delivery
            failure = caught
        finally:
            self._unconfirmed = [run for run in self._unconfirmed if run not in pending]
        return {number: reason for run in pending for number, reason in self._failures(run, failure)}

    async def drain_credit(self) -> None:
        """Take back the link's credit, and release what has arrived or arrives meanwhile, without counting that."""
        if self._link.current_link_credit:
            await self._link.flow(link_credit=0, drain=True)
            pauses = 0
            while pauses < _PAUSES_OF_SILENCE:
                pauses = 0 if await self._listen(_PAUSE) else pauses + 1
        await self._release_arrived()

    async def release(self, ids: Iterable[int]) -> None:
        """Release deliveries without counting that; as when a link is closed, no confirmation is awaited."""
        for first, last in runs(ids):
            await self._dispose(first, last, Settlement.RELEASE, settled=True)

    async def _release_arrived(self) -> None:
        arrived = [number for number, _ in self._arrived]
        self._window.remove(sum(len(message) for _, message in self._arrived))
        self._arrived.clear()
        await self.release(arrived)

    async def _release_and_close(self) -> None:
        with suppress(Exception):
            await self._release_arrived()
        await self._close()

    async def _listen(self, seconds: float) -> bool:
        """Wait for frames; return whether any came. Renews the token when that is due."""
        authenticator = self._handler._cbs_authenticator
        if authenticator is not None:
            await authenticator.handle_token()
        heard = await self._reader.listen(seconds)
        await self._widen_session()
        check_attached(self._handler)
        return heard

    async def _widen_session(self) -> None:
        """Let the session bring more frames; from when a size is known, credit limits their bytes."""
        session, link = self._session, self._link
        if self._size_known:
            if 2 * session.incoming_window <= session.target_incoming_window:
                session.incoming_window = session.target_incoming_window
                await session._outgoing_flow()
        elif session.incoming_window < self._first_frames:
            # One frame tells both: the service sends no message that was asked for in ignorance of its size.
            self._size_known, session.incoming_window = True, session.target_incoming_window
            await link.flow(link_credit=self._window.credit(link.current_link_credit))

    async def _dispose(
        self, first: int, last: int, settlement: Settlement, *, settled: bool = False, error: Any = None
    ) -> None:
        from azure.servicebus._pyamqp.performatives import DispositionFrame

        await self._session._outgoing_disposition(
            DispositionFrame(
                role=True, first=first, last=last, settled=settled, state=_state(settlement, error), batchable=True
            )
        )
        if (broken := self._handler._connection._error) is not None:
            raise broken

    def _failures(self, run: _Run, failure: Exception) -> Iterator[tuple[int, Exception]]:
        from azure.servicebus._pyamqp.receiver import check_disposition_outcome

        for number in run.unanswered:
            yield number, failure
        for number, outcome in run.outcomes.items():
            try:
                check_disposition_outcome(number, outcome, run.settlement.value)
            except Exception as refusal:  # noqa: BLE001 - returned for each delivery
                yield number, mapped_error(self.receiver, refusal)

    def _take_frame(self, data: bytes, start: int, end: int) -> bool:
        take = self._takes.get(data[start + 2 : start + 4])
        return take is not None and take(data, start, end)

    def _take_transfer(self, data: bytes, start: int, end: int) -> bool:
        body = start + 5 + data[start + 4]
        at = start + 6
        handle, at = _unsigned(data, at)
        if handle != self._link.remote_handle:
            return False  # an answer to a request
        number, at = _unsigned(data, at)
        more = False
        fields = data[start + 5]
        if fields > _MORE:
            for _ in range(2, _MORE):  # delivery tag, message format and settled
                at = value_end(data, at)
            more = data[at : value_end(data, at)] in _TRUE
        session, link = self._session, self._link
        session.next_incoming_id = (session.next_incoming_id + 1) & _MAX_NUMBER
        session.incoming_window -= 1
        session.remote_outgoing_window -= 1
        if number is not None:
            self._delivery_id = number
        check_credit(link, end - body, given=self._most_credit - 1)
        if more:
            self._partial += data[body:end]
            check_message_size(len(self._partial))
            return True
        message = data[body:end]
        if self._partial:
            message = bytes(self._partial) + message
            self._partial.clear()
        link.delivery_count = (link.delivery_count + 1) & _MAX_NUMBER
        link.current_link_credit -= 1
        self._window.add(len(message))
        self._arrived.append((self._delivery_id, message))
        return True

    def _take_disposition(self, data: bytes, start: int, end: int) -> bool:
        at = value_end(data, start + 6)
        if not self._unconfirmed or data[start + 6 : at] in _TRUE:
            return False  # of a receiver, which answers what the SDK sent
        first, at = _unsigned(data, at)
        given, at = _unsigned(data, at)
        outcome = value_end(data, at)
        if first is None or data[at:outcome] not in _TRUE:
            return True  # not settled: that confirms nothing
        last = first if given is None else given
        for run in self._unconfirmed:
            common = range(max(first, run.first), min(last, run.last) + 1)
            run.unanswered.difference_update(common)
            if common and not (run.settlement is Settlement.COMPLETE and data.startswith(_ACCEPTED, outcome)):
                run.outcomes.update(dict.fromkeys(common, _decode_outcome(data, start, end)))
        return True


def runs(ids: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and last of each run of consecutive delivery ids, in ascending order."""
    for _, run in groupby(enumerate(sorted(ids)), lambda each: each[1] - each[0]):
        numbers = [number for _, number in run]
        yield numbers[0], numbers[-1]


def _unsigned(data: bytes, at: int) -> tuple[int | None, int]:
    """Return an encoded UINT, or ``None`` for null, and where the next value begins."""
    match data[at]:
        case 0x52:
            return data[at + 1], at + 2
        case 0x70:
            return int.from_bytes(data[at + 1 : at + 5], "big"), at + 5
        case 0x43:
            return 0, at + 1
    return None, at + 1


def _decode_outcome(data: bytes, start: int, end: int) -> Any:
    from azure.servicebus._pyamqp._decode import decode_frame

    return decode_frame(memoryview(data)[start:end])[1][4]


def _state(settlement: Settlement, error: Any) -> Any:
    from azure.servicebus._pyamqp.error import AMQPError
    from azure.servicebus._pyamqp.outcomes import Accepted, Modified, Rejected, Released

    match settlement:
        case Settlement.COMPLETE:
            return Accepted()
        case Settlement.RELEASE:
            return Released()
        case Settlement.ABANDON:
            return Modified(delivery_failed=True, undeliverable_here=False, message_annotations=None)
        case Settlement.DEAD_LETTER:
            reason, description = error
            info = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
            return Rejected(error=AMQPError(condition=b"com.microsoft:dead-letter", description=description, info=info))
