"""The two namespaces as the rest of the core sees them: links that send, receive, peek and settle.

Every call is bounded twice, by the SDK's own timeout and by an outer wait, since some faults
(a frozen peer, an unexpected outcome) hang the SDK even with a timeout. After the outer bound the
link is thrown away and opened anew by the next call. Retrying is off: when to try again is decided
by the sender, the prober and the syphon. One link is used by one coroutine at a time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any, Final, Protocol, TypeVar
from weakref import WeakSet

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver, ServiceBusSender

from servicebus_pair.core.errors import PairClosedError, ServiceError
from servicebus_pair.core.failures import classify
from servicebus_pair.core.options import Endpoint
from servicebus_pair.core.wire import WireBatch

__all__ = ["NamespaceClient", "ReceiveLink", "SendLink", "Turn"]

_log = logging.getLogger(__name__)
_OUTER_GRACE: Final = 0.4
# What a call is given when opening the link has used up its time.
_SHORTEST_SECONDS: Final = 0.1
_CLOSE_SECONDS: Final = 2.0
_SETTLEMENTS_IN_FLIGHT: Final = 32

ResultT = TypeVar("ResultT")


class _Handler(Protocol):
    async def close(self) -> None: ...


async def _timed(call: Awaitable[ResultT], seconds: float) -> ResultT:
    """Bound a call on an open link, which ends at once when it is cancelled: a task of its own costs too much here."""
    async with asyncio.timeout(seconds):
        return await call


class _Link:
    """What a send link and a receive link share: opening late, bounded calls, throwing away."""

    def __init__(self, client: NamespaceClient, path: str, make: Callable[[], Any]) -> None:
        self.path = path
        self._client = client
        self._make = make
        self._handler: Any = None
        self._lock = asyncio.Lock()

    async def _call(self, doing: str, operation: Callable[[Any], Awaitable[ResultT]], *, timeout: float) -> ResultT:
        """Wait for this link's turn, then run ``operation`` on the open handler within ``timeout`` seconds.

        :raises ServiceError: classified; the handler is thrown away unless the error is the message's.
        """
        async with self._lock:
            return await self._attempt(doing, operation, timeout=timeout)

    async def _attempt(
        self, doing: str, operation: Callable[[Any], Awaitable[ResultT]], *, timeout: float, open_already: bool = False
    ) -> ResultT:
        where = f"{doing} {self.path} on {self._client.namespace}"
        self._client.check_open()
        if self._handler is None:
            self._handler = self._make()
        bounded = _timed if open_already else self._client.bounded
        try:
            answer = await bounded(operation(self._handler), timeout + _OUTER_GRACE)
        except asyncio.CancelledError:
            # The handler may be in the middle of a frame: never use it again.
            self._discard()
            raise
        except Exception as failure:
            error = classify(failure, where=where, authenticated=self._client.authenticated)
            if error.retriable or error.fails_over:
                self._discard()
            raise error from failure
        self._client.authenticated = True
        return answer

    def _discard(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            self._client.close_soon(handler)

    async def close(self) -> None:
        """Detach; buffered messages of a receiver are released by the SDK. Bounded to 2 s."""
        handler, self._handler = self._handler, None
        if handler is not None:
            await _close(handler)


def _nothing() -> None:
    """Stand in where nobody needs to know."""


@dataclass(frozen=True, slots=True)
class Turn:
    """What a sender decides when its turn on a shared link has come, which may be long after it asked.

    :param seconds: how long the attempt may take from now on; ``None`` to leave it.
    :param starting: told right before the first byte: from then on a failure leaves the messages in doubt.
    :param patience: how many seconds the turn is waited for before it is left.
    """

    seconds: Callable[[], float | None]
    starting: Callable[[], None] = _nothing
    patience: float = inf


class SendLink(_Link):
    """A sender of one entity of one namespace, shared by everything in this process."""

    _limit = 0
    _largest = 0

    @property
    def batch_limit(self) -> int:
        """Most bytes of a batch, as the service said when the link was opened last; 0 before."""
        return self._limit

    @property
    def message_limit(self) -> int:
        """Most bytes of a message outside a batch, which can be more; 0 before the link was opened."""
        return self._largest

    async def open(self, *, timeout: float) -> int:
        """Attach if needed and answer the most bytes of a batch.

        :param timeout: seconds.
        :raises ServiceError: classified.
        """
        await self.open_in_turn(Turn(seconds=lambda: timeout))
        return self._limit

    async def open_in_turn(self, turn: Turn) -> int | None:
        """As :meth:`open`, but as ``turn`` allows once the link is free; ``None`` when the turn was left."""

        async def attach(seconds: float) -> int:
            if not self._is_open():
                await self._attach(seconds)
            return self._limit

        return self._limit if self._is_open() else await self._in_turn(turn, attach)

    async def reopen(self, *, timeout: float) -> None:
        """Attach anew, whatever the link has now: proof that the entity takes senders.

        :param timeout: seconds.
        :raises ServiceError: classified.
        """
        async with self._lock:
            self._discard()
            await self._attach(timeout)

    @property
    def attached(self) -> bool:
        """True when the last call left a working link."""
        return self._handler is not None

    async def send(self, batch: WireBatch, *, timeout: float) -> None:
        """Send one batch and wait for its acceptance. At least once: after an error it may be stored.

        :param timeout: seconds.
        :raises ServiceError: classified.
        """
        await self.send_in_turn(batch, Turn(seconds=lambda: timeout))

    async def send_in_turn(self, batch: WireBatch, turn: Turn) -> bool:
        """Send one batch as ``turn`` allows once the link is free, and wait for its acceptance.

        :returns: False when the turn was left: nothing was sent.
        :raises ServiceError: classified; the batch is in doubt if ``turn.starting`` was told.
        """

        async def send(seconds: float) -> bool:
            began = asyncio.get_running_loop().time()
            if self._handler is None:
                await self._attach(seconds)
            left = max(_SHORTEST_SECONDS, seconds - (asyncio.get_running_loop().time() - began))
            turn.starting()
            await self._attempt(
                "send to",
                lambda sender: sender.send_messages(batch.wire, timeout=left),
                timeout=left,
                open_already=True,
            )
            return True

        return await self._in_turn(turn, send) is not None

    async def schedule_in_turn(self, batch: WireBatch, turn: Turn, *, at: datetime) -> list[int] | None:
        """Schedule messages as :meth:`send_in_turn` sends them, and answer their sequence numbers.

        :returns: ``None`` when the turn was left: nothing was scheduled.
        :raises ServiceError: classified.
        """

        async def schedule(seconds: float) -> list[int]:
            if self._handler is None:
                await self._attach(seconds)
            turn.starting()
            return await self._attempt(
                "schedule on",
                lambda sender: sender.schedule_messages(batch.messages, at, timeout=seconds),
                timeout=seconds,
            )

        return await self._in_turn(turn, schedule)

    async def cancel_scheduled(self, sequence_numbers: Sequence[int], *, timeout: float) -> None:
        """Cancel scheduled messages. :raises ServiceError: classified; then all of them may still be there."""
        numbers = list(sequence_numbers)
        await self._call(
            "cancel on", lambda sender: sender.cancel_scheduled_messages(numbers, timeout=timeout), timeout=timeout
        )

    async def send_one(self, message: ServiceBusMessage, *, timeout: float) -> None:
        """Send a single message outside any batch, as a ping is sent."""
        await self._call("send to", lambda sender: sender.send_messages(message, timeout=timeout), timeout=timeout)

    def _is_open(self) -> bool:
        return self._handler is not None and self._limit > 0

    async def _in_turn(self, turn: Turn, act: Callable[[float], Awaitable[ResultT]]) -> ResultT | None:
        if self._lock.locked():
            try:
                async with asyncio.timeout(None if turn.patience == inf else turn.patience):
                    await self._lock.acquire()
            except TimeoutError:
                return None
        else:
            await self._lock.acquire()
        try:
            seconds = turn.seconds()
            return None if seconds is None else await act(seconds)
        finally:
            self._lock.release()

    async def _attach(self, timeout: float) -> None:
        async def attach(sender: ServiceBusSender) -> tuple[int, int]:
            batch = await sender.create_message_batch()
            # The SDK shows the limit of batches only. Without the other one, large messages are refused here.
            return batch.max_size_in_bytes, int(getattr(sender, "_max_message_size_on_link", 0))

        self._limit, self._largest = await self._attempt("open a link to", attach, timeout=timeout)


class ReceiveLink(_Link):
    """A peek-lock receiver of one queue."""

    async def receive(self, *, most: int, wait: float, timeout: float) -> list[ServiceBusReceivedMessage]:
        """Receive up to ``most`` messages, waiting up to ``wait`` seconds for the first.

        An empty answer is no sign of health: a frozen peer gives one too.
        """
        return await self._call(
            "receive from",
            lambda receiver: receiver.receive_messages(max_message_count=most, max_wait_time=wait),
            timeout=max(wait, timeout),
        )

    async def peek(self, *, most: int, timeout: float, first: int = 1) -> list[ServiceBusReceivedMessage]:
        """Look at up to ``most`` messages from sequence number ``first`` on, without locking them.

        The SDK takes 0 for "where I was": the default is the true beginning.
        """
        return await self._call(
            "peek at",
            lambda receiver: receiver.peek_messages(max_message_count=most, sequence_number=first, timeout=timeout),
            timeout=timeout,
        )

    async def complete(
        self, messages: Sequence[ServiceBusReceivedMessage], *, timeout: float
    ) -> list[ServiceError | None]:
        """Complete messages, many at a time; answer for each its failure or ``None``."""
        return await self._settle(messages, lambda receiver, message: receiver.complete_message(message), timeout)

    async def abandon(
        self, messages: Sequence[ServiceBusReceivedMessage], *, timeout: float
    ) -> list[ServiceError | None]:
        """Release messages to the queue, many at a time; answer for each its failure or ``None``."""
        return await self._settle(messages, lambda receiver, message: receiver.abandon_message(message), timeout)

    async def dead_letter(
        self, message: ServiceBusReceivedMessage, *, reason: str, description: str, timeout: float
    ) -> ServiceError | None:
        """Move one message to the dead-letter queue; answer the failure or ``None``."""

        def settle(receiver: ServiceBusReceiver, received: ServiceBusReceivedMessage) -> Awaitable[None]:
            return receiver.dead_letter_message(received, reason=reason, error_description=description)

        return (await self._settle([message], settle, timeout))[0]

    async def _settle(
        self,
        messages: Sequence[ServiceBusReceivedMessage],
        settle: Callable[[ServiceBusReceiver, ServiceBusReceivedMessage], Awaitable[None]],
        timeout: float,
    ) -> list[ServiceError | None]:
        slots = asyncio.Semaphore(_SETTLEMENTS_IN_FLIGHT)

        async def one(receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> ServiceError | None:
            async with slots:
                try:
                    await asyncio.wait_for(settle(receiver, message), timeout)
                except Exception as failure:  # noqa: BLE001 - each failure becomes an answer, none is lost
                    return classify(
                        failure,
                        where=f"settle on {self.path} on {self._client.namespace}",
                        authenticated=self._client.authenticated,
                    )
            return None

        async def every(receiver: ServiceBusReceiver) -> list[ServiceError | None]:
            return list(await asyncio.gather(*(one(receiver, message) for message in messages)))

        rounds = 1 + len(messages) // _SETTLEMENTS_IN_FLIGHT
        try:
            return await self._call("settle on", every, timeout=timeout * rounds)
        except ServiceError as error:
            return [error] * len(messages)


class NamespaceClient:
    """One namespace and process: one SDK client, its links, and what was learned about the credential.

    :param endpoint: the namespace and its credential.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self.namespace = endpoint.namespace
        self.authenticated = False
        self._client = _sdk_client(endpoint)
        self._send_links: dict[str, SendLink] = {}
        # Weak: a continuous syphon makes a new link after each failure, for as long as it runs.
        self._receive_links: WeakSet[ReceiveLink] = WeakSet()
        self._closing: set[asyncio.Future[Any]] = set()
        self._closed = False

    def send_link(self, path: str) -> SendLink:
        """Answer the sender of ``path``, the same one for everybody; it opens at the first call."""
        link = self._send_links.get(path.casefold())
        if link is None:
            link = SendLink(self, path, lambda: self._client.get_queue_sender(path))
            self._send_links[path.casefold()] = link
        return link

    def receive_link(self, path: str, *, prefetch: int = 0, dead_letter: bool = False) -> ReceiveLink:
        """Answer a new receiver of the queue ``path``; the caller closes it.

        :param prefetch: messages the link may buffer.
        :param dead_letter: receive from its dead-letter queue.
        """
        sub_queue = ServiceBusSubQueue.DEAD_LETTER if dead_letter else None
        link = ReceiveLink(
            self,
            path,
            lambda: self._client.get_queue_receiver(path, prefetch_count=prefetch, sub_queue=sub_queue),
        )
        self._receive_links.add(link)
        return link

    def check_open(self) -> None:
        """:raises PairClosedError: the client was closed."""
        if self._closed:
            raise PairClosedError(f"the client of namespace {self.namespace} is closed: open a new pair")

    async def bounded(self, call: Awaitable[ResultT], seconds: float) -> ResultT:
        """Await a call of the SDK for at most ``seconds``, even one that ignores its cancellation.

        :raises TimeoutError: there was no answer; what is left of the call ends in the background.
        """
        task = asyncio.ensure_future(call)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            if not task.done():
                task.cancel()
                self._keep(task)
        if task.done():
            return task.result()
        raise TimeoutError(f"no answer in {seconds:.1f} s")

    def _keep(self, task: asyncio.Future[Any]) -> None:
        self._closing.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self._closing.discard(task)
        if not task.cancelled():
            task.exception()  # what an abandoned call ended with tells nothing any more

    def close_soon(self, handler: _Handler) -> None:
        """Close a thrown-away handler in the background, bounded to 2 s."""
        self._keep(asyncio.get_running_loop().create_task(_close(handler)))

    async def close(self) -> None:
        """Close every link and the client, each bounded to 2 s. Idempotent."""
        if self._closed:
            return
        self._closed = True
        links = [*self._send_links.values(), *self._receive_links]
        await asyncio.gather(*(link.close() for link in links))
        if self._closing:
            await asyncio.wait(set(self._closing), timeout=_CLOSE_SECONDS)
        await _close(self._client)


def _sdk_client(endpoint: Endpoint) -> ServiceBusClient:
    if endpoint.connection_string is not None:
        return ServiceBusClient.from_connection_string(endpoint.connection_string.reveal(), retry_total=0)
    return ServiceBusClient(endpoint.host, endpoint.credential, retry_total=0)


async def _close(handler: _Handler) -> None:
    try:
        await asyncio.wait_for(handler.close(), _CLOSE_SECONDS)
    except Exception as failure:  # noqa: BLE001 - closing what is already broken; nothing depends on it
        _log.debug("closing a handler ended with %s", type(failure).__name__)
