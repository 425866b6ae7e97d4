"""Shares the time of an event loop between connections.

What has arrived can be read without waiting: a namespace that sends without end would keep a connection busy, and
with a few connections the event loop, which others need as well.

Used only where ``capabilities.fast_path()`` is true; so private names are imported on use.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

import asyncio
from functools import cache
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final
from weakref import WeakKeyDictionary

# Seconds of each pass of an event loop that all connections together deal with frames.
_MAX_PASS: Final = 0.005
# A connection that took so much of the last second comes after all that took less.
_MAX_DEBT: Final = 1.0
_DEBT_PER_SECOND: Final = 100.0


class Turns:
    """The turns of the connections of one event loop.

    :ivar deadline: when no other turn begins in this pass; ``None`` before the first one.
    :ivar number: of this pass, of those in which a turn began.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time
        self.deadline: float | None = None
        self.number = 0
        self._loop = loop
        self._is_scheduled = False
        self._waiting: list[tuple[float, int, asyncio.Future[None]]] = []
        self._order = count()

    def begin(self, debt: float, now: float) -> bool:
        """Begin a turn; return False if it has to wait for another pass."""
        if self._waiting and self._waiting[0][0] <= debt:
            return False
        if self.deadline is None:
            self.deadline = now + _MAX_PASS
            self._schedule()
        return now < self.deadline

    async def wait(self, debt: float) -> None:
        """Wait for a pass: one turn in each, those in less debt first."""
        future = self._loop.create_future()
        heappush(self._waiting, (debt, next(self._order), future))
        self._schedule()
        await future

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_pass)

    def _next_pass(self) -> None:
        self._is_scheduled, self.deadline = False, None
        self.number += 1
        while self._waiting:
            _, _, future = heappop(self._waiting)
            if not future.done():
                future.set_result(None)
                self.deadline = self.now() + _MAX_PASS
                self._schedule()
                break


_turns: WeakKeyDictionary[asyncio.AbstractEventLoop, Turns] = WeakKeyDictionary()


class Share:
    """What a connection uses of its event loop."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self._turns = _turns.setdefault(loop, Turns(loop))
        # Until when what it used is remembered.
        self._debt = 0.0
        # When the turn began, and in which pass.
        self._began, self._pass = 0.0, -1

    async def turn(self) -> None:
        """Go on, after others if this connection or all of them took long."""
        now = self._turns.now()
        self._pay(now)
        if not self._turns.begin(self._debt, now):
            await self._turns.wait(self._debt)
            now = self._turns.now()
        self._began, self._pass = now, self._turns.number

    def end(self) -> None:
        """End the turn: what follows is not about frames."""
        self._pay(self._turns.now())
        self._pass = -1

    def _pay(self, now: float) -> None:
        if self._pass == self._turns.number:  # otherwise it has waited since
            debt = max(self._debt, now) + _DEBT_PER_SECOND * (now - self._began)
            self._debt = min(debt, now + _MAX_DEBT)


def share_of(connection: Any) -> Share:
    """Return the share of a connection of the SDK."""
    share: Share | None = vars(connection).get("share")
    if share is None:
        share = connection.share = Share()
    return share


@cache
def take_turns() -> None:
    """Have every connection wait for its turn before it deals with a frame; done once per process."""
    from azure.servicebus._pyamqp.aio._connection_async import Connection
    from azure.servicebus._pyamqp.aio._transport_async import WebSocketTransportAsync

    connection_class: Any = Connection
    websocket_class: Any = WebSocketTransportAsync
    process = connection_class._process_incoming_frame
    connect = websocket_class.connect

    async def process_in_turn(connection: Any, channel: Any, frame: Any) -> Any:
        share = share_of(connection)
        try:
            await share.turn()
        finally:  # also when this is cancelled: the frame has been read
            result = await process(connection, channel, frame)
            share.end()
        return result

    async def connect_paced(transport: Any) -> None:
        await connect(transport)
        transport.sock._reader = _PacedMessages(transport.sock._reader)

    connection_class._process_incoming_frame = process_in_turn
    websocket_class.connect = connect_paced


class _PacedMessages:
    """What aiohttp reads from: it passes over pongs, and while it closes over all else, without a pause."""

    def __init__(self, messages: Any) -> None:
        self._messages = messages
        self._share = Share()

    async def read(self) -> Any:
        await self._share.turn()
        return await self._messages.read()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._messages, name)
