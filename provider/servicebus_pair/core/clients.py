"""The two namespaces as the rest of the core sees them: links that send, receive, peek and settle.

Retrying is off: when to try again is decided by the sender, the prober and the syphon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakSet

from azure.servicebus import ServiceBusReceivedMessage, ServiceBusSubQueue, TransportType
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from servicebus_pair.core.errors import PairClosedError, ServiceError
from servicebus_pair.core.existence import Existence
from servicebus_pair.core.failures import classify
from servicebus_pair.core.link import CLOSE_SECONDS, Link, close_quietly
from servicebus_pair.core.meter import Meter, Operation
from servicebus_pair.core.options import Endpoint
from servicebus_pair.core.prompt_opening import authorities, opens_promptly
from servicebus_pair.core.sdk_inside import (
    PartlySettledError,
    can_settle_runs,
    has_kept,
    make_patient,
    release_runs,
    runs,
    settle_run,
    stop_delivery,
)
from servicebus_pair.core.send_link import SendLink

__all__ = ["NamespaceClient", "ReceiveLink"]

_log = logging.getLogger(__name__)
_SETTLEMENTS_IN_FLIGHT: Final = 32
# What came while nobody received is in hand already, and its locks run.
_WITH_KEPT_SECONDS: Final = 0.2

ResultT = TypeVar("ResultT")
_Answers: TypeAlias = dict[int, ServiceError | None]


def _never() -> bool:
    """Stand in for a link that nobody ends."""
    return False


class ReceiveLink(Link):
    """A peek-lock receiver of one queue.

    :param over: asked, many times a second, while a receive waits; once it is true, no message is taken any more.
    """

    def __init__(
        self, client: NamespaceClient, path: str, make: Callable[[], Any], *, over: Callable[[], bool]
    ) -> None:
        super().__init__(client, path, make)
        self._over = over

    async def receive(self, *, most: int, wait: float, timeout: float) -> list[ServiceBusReceivedMessage]:
        """Receive up to ``most`` messages, waiting up to ``wait`` seconds for the first.

        An empty answer is no sign of health: a frozen peer gives one too. What comes as the link is over
        is given back, as if it had never been delivered.
        """

        async def receive(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
            await make_patient(receiver, over=self._over, seen=self._client.meter.count_increments)
            seconds = min(wait, _WITH_KEPT_SECONDS) if has_kept(receiver) else wait
            return await receiver.receive_messages(max_message_count=most, max_wait_time=seconds)

        received: list[ServiceBusReceivedMessage] = []
        try:
            received = await self._call("receive from", receive, timeout=max(wait, timeout))
        finally:
            # One that failed, or was cancelled in its long poll, was asked for all the same.
            self._client.meter.count(Operation.RECEIVE if received else Operation.EMPTY_RECEIVE, len(received) or 1)
        if received and self._over():
            await self._give_back(received, timeout=timeout)
            return []
        return received

    async def _give_back(self, received: Sequence[ServiceBusReceivedMessage], *, timeout: float) -> None:
        if self._handler is None or not can_settle_runs(self._handler, received):
            await self.abandon(received, timeout=timeout)
            return
        self._client.meter.count(Operation.SETTLE, len(received))
        await self._call("settle on", lambda receiver: release_runs(receiver, received), timeout=timeout)

    async def peek(self, *, most: int, timeout: float, first: int = 1) -> list[ServiceBusReceivedMessage]:
        """Look at up to ``most`` messages from sequence number ``first`` on, without locking them.

        The SDK takes 0 for "where I was": the default is the true beginning.
        """
        self._client.meter.count(Operation.MANAGE)
        return await self._call(
            "peek at",
            lambda receiver: receiver.peek_messages(max_message_count=most, sequence_number=first, timeout=timeout),
            timeout=timeout,
        )

    async def quiet(self, *, timeout: float) -> None:
        """Have nothing more delivered until the next receive; what is on its way is given back, uncounted."""
        if self._handler is not None:
            await self._call("take credit back from", stop_delivery, timeout=timeout)

    def leave(self) -> None:
        """Detach in the background, which takes a few answers; the next call attaches anew."""
        self._discard()

    async def complete(
        self, messages: Sequence[ServiceBusReceivedMessage], *, timeout: float
    ) -> list[ServiceError | None]:
        """Complete messages, neighbours together; answer for each its failure or ``None``.

        A failure is answered for what the service did not confirm, and no more.
        """
        return await self._settle_runs(messages, complete=True, timeout=timeout)

    async def abandon(
        self, messages: Sequence[ServiceBusReceivedMessage], *, timeout: float
    ) -> list[ServiceError | None]:
        """Release messages to the queue, neighbours together; answer for each its failure or ``None``."""
        return await self._settle_runs(messages, complete=False, timeout=timeout)

    async def dead_letter(
        self, message: ServiceBusReceivedMessage, *, reason: str, description: str, timeout: float
    ) -> ServiceError | None:
        """Move one message to the dead-letter queue; answer the failure or ``None``."""

        def settle(receiver: ServiceBusReceiver, run: Sequence[ServiceBusReceivedMessage]) -> Awaitable[None]:
            return receiver.dead_letter_message(run[0], reason=reason, error_description=description)

        return (await self._settle([[message]], settle, timeout))[id(message)]

    async def _settle_runs(
        self, messages: Sequence[ServiceBusReceivedMessage], *, complete: bool, timeout: float
    ) -> list[ServiceError | None]:
        def one(receiver: ServiceBusReceiver, run: Sequence[ServiceBusReceivedMessage]) -> Awaitable[None]:
            return receiver.complete_message(run[0]) if complete else receiver.abandon_message(run[0])

        def together(receiver: ServiceBusReceiver, run: Sequence[ServiceBusReceivedMessage]) -> Awaitable[None]:
            return settle_run(receiver, run, complete=complete, timeout=timeout)

        if self._handler is not None and can_settle_runs(self._handler, messages):
            answers = await self._settle(list(runs(messages)), together, timeout)
        else:
            answers = await self._settle([[message] for message in messages], one, timeout)
        return [answers[id(message)] for message in messages]

    async def _settle(
        self,
        parts: Sequence[Sequence[ServiceBusReceivedMessage]],
        settle: Callable[[ServiceBusReceiver, Sequence[ServiceBusReceivedMessage]], Awaitable[None]],
        timeout: float,
    ) -> _Answers:
        """Settle each part, many at a time; answer the failure of each message by its identity."""
        slots = asyncio.Semaphore(_SETTLEMENTS_IN_FLIGHT)
        self._client.meter.count(Operation.SETTLE, sum(map(len, parts)))

        async def one(receiver: ServiceBusReceiver, part: Sequence[ServiceBusReceivedMessage]) -> _Answers:
            async with slots:
                try:
                    await asyncio.wait_for(settle(receiver, part), timeout)
                except PartlySettledError as partly:
                    return _answers(part, self._settlement_error(partly.__cause__ or partly), partly.confirmed)
                except Exception as failure:  # noqa: BLE001 - each failure becomes an answer, none is lost
                    return _answers(part, self._settlement_error(failure))
            return _answers(part, None)

        async def every(receiver: ServiceBusReceiver) -> list[_Answers]:
            return list(await asyncio.gather(*(one(receiver, part) for part in parts)))

        rounds = 1 + len(parts) // _SETTLEMENTS_IN_FLIGHT
        try:
            answers = await self._call("settle on", every, timeout=timeout * rounds)
        except ServiceError as error:
            answers = [_answers(part, error) for part in parts]
        return {each: answer for part in answers for each, answer in part.items()}

    def _settlement_error(self, failure: BaseException) -> ServiceError:
        where = f"settle on {self.path} on {self._client.namespace}"
        return classify(failure, where=where, authenticated=self._client.authenticated)


def _answers(
    part: Sequence[ServiceBusReceivedMessage], error: ServiceError | None, confirmed: Collection[int] = ()
) -> _Answers:
    """What became of each message of a part, by identity."""
    return {id(message): None if id(message) in confirmed else error for message in part}


class NamespaceClient:
    """One namespace and process: one SDK client, its links, and what was learned about the credential.

    :param endpoint: the namespace and its credential.
    :param meter: counts every operation.
    :param sends: what a send to this namespace counts as.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        meter: Meter | None = None,
        sends: Operation = Operation.SEND,
    ) -> None:
        self.namespace = endpoint.namespace
        self.meter = Meter() if meter is None else meter
        self.sends = sends
        self.on_ended: Callable[[str], None] = _nobody
        self.authenticated = False
        self._client = _sdk_client(endpoint)
        self.explain = Existence(endpoint, meter=self.meter).explain
        self._send_links: dict[tuple[str, int], SendLink] = {}
        # Weak: a continuous syphon makes a new link after each failure, for as long as it runs.
        self._receive_links: WeakSet[ReceiveLink] = WeakSet()
        self._closing: set[asyncio.Future[Any]] = set()
        self._closed = False
        self._fault: PairClosedError | None = None

    def send_link(self, path: str, *, lane: int = 0) -> SendLink:
        """Answer the sender of ``path``, the same one for everybody; it opens at the first call.

        :param lane: each has a link of its own, for who has several batches on their way at a time.
        """
        link = self._send_links.get((path.casefold(), lane))
        if link is None:
            link = SendLink(self, path, lambda: opens_promptly(self._client.get_queue_sender(path)))
            self._send_links[path.casefold(), lane] = link
        return link

    def receive_link(
        self,
        path: str,
        *,
        prefetch: int = 0,
        dead_letter: bool = False,
        session_id: str | None = None,
        over: Callable[[], bool] = _never,
    ) -> ReceiveLink:
        """Answer a new receiver of the queue ``path``; the caller closes it.

        :param prefetch: messages the link may buffer.
        :param dead_letter: receive from its dead-letter queue.
        :param session_id: of this session alone, whose lock the open link holds.
        :param over: ends a receive that waits, once it answers True; asked many times a second.
        """
        sub_queue = ServiceBusSubQueue.DEAD_LETTER if dead_letter else None
        link = ReceiveLink(
            self,
            path,
            lambda: opens_promptly(
                self._client.get_queue_receiver(
                    path, prefetch_count=prefetch, sub_queue=sub_queue, session_id=session_id
                )
            ),
            over=over,
        )
        self._receive_links.add(link)
        return link

    def check_open(self) -> None:
        """:raises PairClosedError: the client was closed, or faulted with its partner."""
        if self._fault is not None:
            raise self._fault
        if self._closed:
            raise PairClosedError(f"the client of namespace {self.namespace} is closed: open a new pair")

    @property
    def ended(self) -> bool:
        """True once the client was closed or faulted."""
        return self._closed or self._fault is not None

    def fault(self, error: PairClosedError) -> None:
        """Make every call from now on raise ``error``, and close what is open in the background. Idempotent."""
        if self.ended:
            return
        self._fault = error
        _log.error("namespace=%s: its client is faulted: %s", self.namespace, error)
        self._keep(asyncio.get_running_loop().create_task(self._close_all()))
        self.on_ended(f"was faulted ({error})")

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

    def close_soon(self, handler: Any) -> None:
        """Close a thrown-away handler in the background, bounded to 2 s."""
        self._keep(asyncio.get_running_loop().create_task(close_quietly(handler)))

    async def close(self) -> None:
        """Close every link and the client, each bounded to 2 s. Idempotent."""
        if self._closed:
            return
        self._closed = True
        if self._fault is None:
            self.on_ended("was closed")
        await self._close_all()

    async def _close_all(self) -> None:
        links = [*self._send_links.values(), *self._receive_links]
        await asyncio.gather(*(link.close() for link in links))
        closing = self._closing - {asyncio.current_task()}
        if closing:
            await asyncio.wait(closing, timeout=CLOSE_SECONDS)
        await close_quietly(self._client)


def _nobody(why: str) -> None:
    """Stand in until a partner is there."""


def _sdk_client(endpoint: Endpoint) -> ServiceBusClient:
    web = endpoint.transport == "websocket"
    given = {
        "custom_endpoint_address": endpoint.endpoint_address,
        "connection_verify": endpoint.ca_file,
        "ssl_context": authorities(endpoint.ca_file, tls=not endpoint.emulator),
    }
    settings: dict[str, Any] = {
        "retry_total": 0,
        "transport_type": TransportType.AmqpOverWebsocket if web else TransportType.Amqp,
        **{name: value for name, value in given.items() if value is not None},
    }
    if endpoint.connection_string is not None:
        return ServiceBusClient.from_connection_string(endpoint.connection_string.reveal(), **settings)
    return ServiceBusClient(endpoint.host, endpoint.credential, use_tls=not endpoint.emulator, **settings)
