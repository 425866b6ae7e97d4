"""Client of one namespace: creates its links, bounds their calls, closes them.

The SDK's retries are off: the sender, the prober and the syphon decide when to try again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar
from weakref import WeakSet

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusSubQueue, TransportType
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from servicebus_pair.core.model.errors import (
    AuthenticationError,
    AuthenticationSuspectError,
    PairClosedError,
    ServiceFaultError,
)
from servicebus_pair.core.model.logs import get_logger, guard_library_logs
from servicebus_pair.core.model.options import Endpoint, PairOptions
from servicebus_pair.core.model.usage_meter import Meter, Operation
from servicebus_pair.core.sdk._private.capabilities import fast_path, relays
from servicebus_pair.core.sdk._private.link_patches import patch_link, patch_session_browsers, shared_ssl_context
from servicebus_pair.core.sdk._private.redirects import refuse_redirects
from servicebus_pair.core.sdk.entity_lookup import EntityLookup
from servicebus_pair.core.sdk.error_mapping import classify
from servicebus_pair.core.sdk.idle_links import IdleLinks
from servicebus_pair.core.sdk.link import CLOSE_TIMEOUT, close_quietly
from servicebus_pair.core.sdk.receive_link import ReceiveLink
from servicebus_pair.core.sdk.relay.receive import RelayReceiveLink, RelaySessionLink
from servicebus_pair.core.sdk.relay.send import RelaySendLink
from servicebus_pair.core.sdk.send_link import SendLink
from servicebus_pair.core.sdk.session_link import SessionLink

_log = get_logger(__name__)
ResultT = TypeVar("ResultT")
LinkT = TypeVar("LinkT", bound=ReceiveLink)

# What arrives between two receives, the public SDK releases, and later messages of the session overtake it; a buffer
# keeps them, under the lock of the session.
_PUBLIC_SESSION_PREFETCH: Final = 100
# The ids of all sessions of a queue are in memory at once; this is enough for about a million of them.
_MAX_SESSIONS_BYTES: Final = 128 * 2**20
# What Python needs for a text in a set, in addition to its characters.
_BYTES_PER_SESSION: Final = 100
# Until the size of messages is known, frames bound their bytes: so many that a first receive needs one round trip.
_RELAY_FRAME_BYTES: Final = 2**16


class NamespaceClient:
    """The links of one namespace in this process, over one SDK client.

    :param endpoint: the namespace and its credential.
    :param meter: counts every operation.
    :param send_operation: the kind of operation that a send to this namespace is counted as.
    :param max_idle_connections: connections of senders that are kept while no call uses them.
    :ivar authenticated: True once a call succeeded; a later authentication failure is then only a suspicion.
    :ivar can_relay: True where links can leave messages encoded.
    :ivar is_closed: True once the client was closed or faulted.
    :ivar on_closed: called with the reason when the client is closed or faulted.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        meter: Meter | None = None,
        send_operation: Operation = Operation.SEND,
        max_idle_connections: int = PairOptions().max_idle_connections,
    ) -> None:
        guard_library_logs("azure")
        self.namespace = endpoint.namespace
        self.meter = Meter() if meter is None else meter
        self.send_operation = send_operation
        self.on_closed: Callable[[str], None] = lambda _: None
        self.authenticated = False
        self.can_relay = relays()
        self._client = _sdk_client(endpoint)
        patch_session_browsers(self._client)
        self.explain_auth_failure = EntityLookup(endpoint, meter=self.meter).explain_auth_failure
        self.idle_links = IdleLinks(self.namespace, max_idle_connections)
        self._send_links: dict[tuple[str, int], SendLink] = {}
        self._relay_links: dict[str, RelaySendLink] = {}
        # Weak, because a continuous syphon creates a new link after each failure.
        self._receive_links: WeakSet[ReceiveLink] = WeakSet()
        self._background: set[asyncio.Future[Any]] = set()
        self.is_closed = False
        self._closing: asyncio.Task[None] | None = None
        self._fault: PairClosedError | None = None

    def relay_send_link(self, path: str) -> RelaySendLink:
        """Return the sender of encoded batches to ``path`` that this process shares; it attaches on first use."""
        key = path.casefold()
        if key not in self._relay_links:
            self._relay_links[key] = RelaySendLink(self, path, lambda: patch_link(self._client.get_queue_sender(path)))
        return self._relay_links[key]

    def send_link(self, path: str, *, link_index: int = 0) -> SendLink:
        """Return the sender of ``path`` that this process shares; it attaches on first use.

        :param link_index: selects one of several links to the same entity, for concurrent batches.
        """
        key = path.casefold(), link_index
        if key not in self._send_links:
            self._send_links[key] = SendLink(self, path, lambda: patch_link(self._client.get_queue_sender(path)))
        return self._send_links[key]

    def receive_link(
        self,
        path: str,
        *,
        dead_letter: bool = False,
        should_stop: Callable[[], bool] = lambda: False,
        relay_bytes: int = 0,
    ) -> ReceiveLink:
        """Return a new receiver of the queue ``path``; the caller closes it.

        :param dead_letter: receive from the dead-letter queue.
        :param should_stop: polled many times a second during a receive; ends it when True.
        :param relay_bytes: leave messages encoded, and receive about so many bytes at a time; 0 decodes them.
        """
        create_handler = partial(
            self._create_receiver,
            path,
            relay_bytes=relay_bytes,
            sub_queue=ServiceBusSubQueue.DEAD_LETTER if dead_letter else None,
        )
        kind = RelayReceiveLink if relay_bytes else ReceiveLink
        return self._added(kind(self, path, create_handler, should_stop=should_stop), relay_bytes)

    async def list_sessions(self, path: str, *, timeout: float) -> list[str]:
        """Return the ids of the sessions of a queue that hold messages, also of those that a receiver has locked.

        Sessions that appear or disappear meanwhile may be missing.

        :raises ServiceError: classified.
        """

        async def read() -> set[str]:
            found: set[str] = set()
            size = 0
            async for session_id in self._client.list_queue_sessions(path, timeout=timeout):
                size += len(session_id) + _BYTES_PER_SESSION
                if size > _MAX_SESSIONS_BYTES:
                    raise ServiceFaultError(f"more sessions than fit into {_MAX_SESSIONS_BYTES} bytes")
                found.add(session_id)
            return found

        self.check_open()
        self.meter.count(Operation.MANAGE)
        try:
            return sorted(await self.run_bounded(read(), timeout))
        except Exception as failure:
            where = f"list the sessions of {path} on {self.namespace}"
            error = classify(failure, where=where, authenticated=self.authenticated)
            if isinstance(error, ServiceFaultError):
                # The SDK reports a missing queue as a fault of its management link.
                await self._check_exists(path, timeout=timeout)
            if isinstance(error, AuthenticationError | AuthenticationSuspectError):
                error = await self.explain_auth_failure(error, path, timeout=timeout)
            raise error from failure

    async def _check_exists(self, path: str, *, timeout: float) -> None:
        """:raises EntityNotFoundError: it does not; dead letters have no sessions, so that any queue can be peeked."""
        link = self.receive_link(path, dead_letter=True)
        try:
            await link.peek(max_messages=1, timeout=timeout)
        finally:
            await link.close()

    def session_link(
        self,
        path: str,
        *,
        wait: float,
        session_id: str | None = None,
        should_stop: Callable[[], bool] = lambda: False,
        relay_bytes: int = 0,
    ) -> SessionLink:
        """Return a new link that accepts one session of the queue ``path``; the caller closes it.

        :param wait: seconds that the service waits for a session.
        :param session_id: the session; by default the next unlocked one that has messages.
        :param should_stop: as in :meth:`receive_link`, as is ``relay_bytes``.
        """
        create_handler = partial(
            self._create_receiver,
            path,
            relay_bytes=relay_bytes,
            session_id=NEXT_AVAILABLE_SESSION if session_id is None else session_id,
            max_wait_time=wait,
            prefetch_count=0 if fast_path() else _PUBLIC_SESSION_PREFETCH,
        )
        kind = RelaySessionLink if relay_bytes else SessionLink
        link = kind(self, path, create_handler, should_stop=should_stop, session_id=session_id, wait=wait)
        return self._added(link, relay_bytes)

    def _create_receiver(self, path: str, *, relay_bytes: int, **settings: Any) -> ServiceBusReceiver:
        receiver = self._client.get_queue_receiver(path, **settings)
        return patch_link(receiver, max_frame_bytes=_RELAY_FRAME_BYTES if relay_bytes else None)

    def _added(self, link: LinkT, relay_bytes: int) -> LinkT:
        if isinstance(link, RelayReceiveLink):
            link.max_bytes = relay_bytes
        self._receive_links.add(link)
        return link

    def check_open(self) -> None:
        """:raises PairClosedError: the client was closed, or faulted with its partner."""
        if self._fault is not None:
            raise self._fault
        if self.is_closed:
            raise PairClosedError(f"the client of namespace {self.namespace} is closed: open a new pair")

    def fault(self, error: PairClosedError) -> None:
        """Make every further call raise ``error``, and close all links in the background. Idempotent."""
        if self.is_closed:
            return
        self._fault, self.is_closed = error, True
        _log.error("namespace=%s: its client is faulted: %s", self.namespace, error)
        self._track(asyncio.get_running_loop().create_task(self._close_all()))
        self.on_closed(f"was faulted ({error})")

    async def run_bounded(self, call: Awaitable[ResultT], seconds: float) -> ResultT:
        """Await an SDK call for at most ``seconds``, even one that ignores its cancellation.

        :raises TimeoutError: the call took longer; it is cancelled and ends in the background.
        """
        task = asyncio.ensure_future(call)
        try:
            await asyncio.wait({task}, timeout=seconds)
        finally:
            if not task.done():
                task.cancel()
                self._track(task)
        if task.done():
            return task.result()
        raise TimeoutError(f"no answer in {seconds:.1f} s")

    def _track(self, task: asyncio.Future[Any]) -> None:
        self._background.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it

    def close_soon(self, handler: Any) -> None:
        """Close a discarded handler in the background, within 2 s."""
        self._track(asyncio.get_running_loop().create_task(close_quietly(handler)))

    async def close(self) -> None:
        """Close every link, then the client, each within 2 s. Idempotent.

        When cancelled, this goes on in the background, and another call waits for it.
        """
        if self._closing is None:
            self.is_closed = True
            if self._fault is None:
                self.on_closed("was closed")
            self._closing = asyncio.get_running_loop().create_task(self._close_all(), name=f"close {self.namespace}")
        await asyncio.shield(self._closing)

    async def _close_all(self) -> None:
        links = [*self._send_links.values(), *self._relay_links.values(), *self._receive_links]
        await asyncio.gather(*(link.close() for link in links))
        background = self._background - {asyncio.current_task()}
        if background:
            await asyncio.wait(background, timeout=CLOSE_TIMEOUT)
        await close_quietly(self._client)


_TRANSPORT_TYPES: Final = {"amqp": TransportType.Amqp, "websocket": TransportType.AmqpOverWebsocket}


def _sdk_client(endpoint: Endpoint) -> ServiceBusClient:
    if endpoint.transport == "websocket":
        refuse_redirects()
    optional = {
        "custom_endpoint_address": endpoint.endpoint_address,
        "connection_verify": endpoint.ca_file,
        "ssl_context": shared_ssl_context(endpoint.ca_file, tls=not endpoint.emulator),
    }
    settings: dict[str, Any] = {
        "retry_total": 0,
        "transport_type": _TRANSPORT_TYPES[endpoint.transport],
        **{name: value for name, value in optional.items() if value is not None},
    }
    if endpoint.connection_string is not None:
        return ServiceBusClient.from_connection_string(endpoint.connection_string.reveal(), **settings)
    return ServiceBusClient(endpoint.host, endpoint.credential, use_tls=not endpoint.emulator, **settings)
