"""One AMQP connection: an asyncio protocol that drives Qpid Proton's engine.

Received bytes become Proton events, which go to the handlers of links. Bytes are sent at two points only: after input
(open, close and heartbeat frames), and at the end of a cycle of the broker, when the changes they confirm are durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Final, cast

from cproton import ffi, lib
from proton import Collector, Connection, DataException, Link, Transport

from servicebus_emulator.amqp.broker.broker import Broker
from servicebus_emulator.amqp.codec import proton_fast_path as proton
from servicebus_emulator.amqp.codec.frame_padding import FramePadder, needs_padding
from servicebus_emulator.amqp.session.idle_timeouts import IdleMonitor
from servicebus_emulator.amqp.session.incoming_frames import FrameUnreadable, IncomingFrames
from servicebus_emulator.amqp.session.link_endpoints import MAX_FRAME_SIZE, LinkEndpoints
from servicebus_emulator.amqp.session.link_registry import CHANNEL_MAX, LinkHandler
from servicebus_emulator.amqp.session.link_settings import remote_properties
from servicebus_emulator.amqp.session.sasl import SaslServer
from servicebus_emulator.amqp.transport.newcomers import ClientProtocol
from servicebus_emulator.amqp.transport.stream_faults import FaultableStream
from servicebus_emulator.amqp.transport.timeouts import ClientTimeouts
from servicebus_emulator.engine.model.errors import BrokerError
from servicebus_emulator.faults import Pace
from servicebus_emulator.logs import event

# After a freeze, a client has this long to send a frame before its idle timeout is checked again.
_SECONDS_AFTER_FREEZE: Final = 5.0
_FATAL_ERRORS: Final = (BrokerError, UnicodeDecodeError, RecursionError, DataException)
_peek_event, _pop_event, _type_of = lib.pn_collector_peek, lib.pn_collector_pop, lib.pn_event_type
_push, _pending = lib.pn_transport_push, lib.pn_transport_pending
_CHAR_ARRAY: Final = ffi.typeof("char[]")
_DEFAULT_TIMEOUTS: Final = ClientTimeouts()

_log = logging.getLogger(__name__)


class AmqpConnection(LinkEndpoints, ClientProtocol):
    """Serves one client.

    :param broker: the namespace's broker.
    :param attach: returns the handler of a link that the client attaches, or raises why the link is refused; None when
        the answer follows later, by :meth:`complete_attach` or :meth:`refuse_attach`.
    :param timeouts: how long to wait for the client.
    :ivar congested: whether the client reads more slowly than it is sent to.
    :ivar closed: whether the connection is closed.
    :ivar receives_batch: whether the delivery whose first frame is processed is a batch.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        attach: Callable[[AmqpConnection, Link], LinkHandler | None],
        timeouts: ClientTimeouts = _DEFAULT_TIMEOUTS,
    ) -> None:
        super().__init__(broker, attach=attach, monitor=IdleMonitor(self, timeouts=timeouts))
        self.congested = False
        self.closed = False
        self.receives_batch = False
        self._stream: FaultableStream | None = None
        self._heartbeat: asyncio.TimerHandle | None = None
        self._flush_due = False
        # The deliveries that a disposition of several settles, by link, while its frame is processed.
        self._range: dict[proton.Handle, list[proton.Handle]] | None = None
        self._padder = FramePadder(sparse=True) if broker.sparse_answers else None
        self._collector = Collector()
        self._connection = Connection()
        self._connection.collect(self._collector)
        self._transport = Transport(Transport.SERVER)
        self._transport.max_frame_size = MAX_FRAME_SIZE
        self._transport.channel_max = CHANNEL_MAX
        # Proton announces half; the service announces all of it (the monitor closes a silent connection after that).
        self._transport.idle_timeout = 2 * (timeouts.silence_seconds or 0)
        self._transport.bind(self._connection)
        self._raw_transport = self._transport._impl  # noqa: SLF001 - the C object that Proton's wrapper hides
        self._raw_collector = self._collector._impl  # noqa: SLF001

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start to serve the client."""
        frames = IncomingFrames(
            self._push, on_range=self._push_range, on_batch=self._push_batch, max_frame_size=MAX_FRAME_SIZE
        )
        sasl = SaslServer(
            send=self._send,
            on_data=partial(self._receive, frames),
            authenticate=self.authorization.log_in,
            refuse=self._refuse_client,
        )
        self._stream = FaultableStream(cast("asyncio.Transport", transport), on_data=sasl.receive)
        self._monitor.start()
        self.broker.add_connection(self)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Pass the bytes to Proton and handle its events."""
        if self._stream is not None:
            self._stream.receive(data)

    def _send(self, data: bytes) -> None:
        if self._stream is not None:
            self._stream.write(data)

    def _refuse_client(self, reason: str) -> None:
        name = self.broker.namespace.name
        _log.warning("namespace %s: a client was refused: %s", name, reason, extra=event("refused", namespace=name))
        self._shut_down()
        if self._stream is not None:
            self._stream.close()

    def _receive(self, frames: IncomingFrames, data: bytes) -> None:
        self.broker.begin_input()
        self._flush_due = True
        try:
            frames.receive(data)
        finally:
            self.broker.end_input()
        if self._flush_due:
            # The broker ran no cycle, or one without replies to this client.
            self.flush()

    def _push(self, data: bytes) -> None:
        if self.closed:
            return
        # Proton takes as much as it has room for, and less than nothing after its end.
        taken = _push(self._raw_transport, data, len(data))
        self._handle_events()
        if taken < len(data):
            view = memoryview(data)
            while 0 < taken < len(view) and not self.closed:
                view = view[taken:]
                taken = _push(self._raw_transport, ffi.from_buffer(view), len(view))
                self._handle_events()

    def _push_range(self, frame: bytes) -> None:
        """Process a disposition of several deliveries, which one disposition is to answer."""
        self._range = {}
        self._push(frame)
        settled, self._range = self._range, None
        try:
            self._dispatch_range(settled)
        except _FATAL_ERRORS as error:
            self._close_for(error)

    def _push_batch(self, frame: bytes) -> None:
        """Process the first frame of a delivery that is a batch."""
        self.receives_batch = True
        try:
            self._push(frame)
        finally:
            self.receives_batch = False

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything of the client.

        No reference cycles remain, so that Proton's buffers are freed now and not by the garbage collector, which runs
        seldom.
        """
        if exc is not None:
            _log.debug("connection lost: %s", exc)
        self._shut_down()
        if self._stream is not None:
            self._stream.stop()
            self._stream = None
        # Before its parts are freed: a client can leave Proton's transport with pointers to sessions that are gone.
        self._transport.unbind()
        self.broker.remove_connection(self)

    def _shut_down(self) -> None:
        """Ignore further input and release everything of the client."""
        self.closed = True
        self._monitor.stop()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None
        self._close_links()
        self.authorization.clear_links()

    def pause_writing(self) -> None:
        """Send no messages until the client has read what was sent."""
        self.congested = True

    def resume_writing(self) -> None:
        """Send messages again."""
        if self._stream is not None:
            self._stream.resume_reading()
            if self._stream.frozen:
                return
        self.congested = False
        for _, handler in self._links.handlers:
            handler.on_flow()

    # Called by the broker

    def flush(self) -> None:
        """Send the bytes that Proton has ready."""
        stream = self._stream
        self._flush_due = False
        if stream is None or self.closed:
            return
        transport = self._raw_transport
        pending = _pending(transport)
        while pending > 0:
            buffer = ffi.new(_CHAR_ARRAY, pending)
            size = lib.pn_transport_peek(transport, buffer, pending)
            if size <= 0:
                break
            written = ffi.unpack(buffer, size)
            stream.write(written if self._padder is None else self._padder.pad(written))
            lib.pn_transport_pop(transport, size)
            pending = _pending(transport)
        if pending < 0:
            # Proton's end of stream: the connection is closed, or the client's bytes are no AMQP.
            self._shut_down()
            stream.close()
        elif self.congested:
            stream.pause_reading_if_backlogged()

    def write_frames(self) -> None:
        """Have Proton write the frames of the dispositions so far.

        Otherwise it merges dispositions of adjacent deliveries into one frame, which only the answer to a disposition
        of a range may be (see :mod:`servicebus_emulator.amqp.session.incoming_frames`): 450 concurrent settlements of
        the Python client per second instead of thousands.
        """
        _pending(self._raw_transport)

    def abort(self) -> None:
        """Drop the connection and its unsent bytes."""
        self.closed = True
        if self._stream is not None:
            self._stream.abort()

    def close(self) -> None:
        """Close with an AMQP close frame."""
        if self.closed:
            return
        self._connection.close()
        self.flush()
        self._shut_down()
        if self._stream is not None:
            self._stream.close()

    # Fault injection (see `FaultTarget`)

    @property
    def frozen(self) -> bool:
        """Whether a fault suspends reading and writing."""
        return self._stream is not None and self._stream.frozen

    @property
    def container(self) -> str:
        """The name of this side of the connection."""
        return self.broker.namespace.name

    @property
    def frames_received(self) -> int:
        """How many frames have arrived."""
        return int(lib.pn_transport_get_frames_input(self._raw_transport))

    def freeze(self) -> None:
        """Suspend reading and writing."""
        self.congested = True
        if self._stream is not None:
            self._stream.freeze()

    def thaw(self) -> None:
        """Resume reading and writing."""
        if self._heartbeat is not None:
            # The client may have sent heartbeats that were not read.
            self._heartbeat.cancel()
            self._heartbeat = asyncio.get_running_loop().call_later(_SECONDS_AFTER_FREEZE, self._on_heartbeat)
        if self._stream is not None:
            self._stream.thaw()
        self.resume_writing()

    def lose_packets(self, *, lost: bool) -> None:
        """Start or stop dropping the packets that arrive."""
        if self._stream is not None and not self.closed:
            self._stream.lose_packets(lost=lost)

    def set_pace(self, pace: Pace | None) -> None:
        """Set delay and bandwidth; None = neither."""
        if self._stream is not None:
            self._stream.set_pace(pace)

    def reset(self) -> None:
        """Close with a TCP reset."""
        self.closed = True
        if self._stream is not None:
            self._stream.reset()

    def close_with_error(self, error: BrokerError) -> None:
        """Close the connection with an error."""
        self._connection.condition = proton.to_condition(error, link=None)
        self.close()

    # Proton's events

    def _close_for(self, error: Exception) -> None:
        name = self.broker.namespace.name
        if isinstance(error, BrokerError):
            _log.info("namespace %s: a connection is closed: %s", name, error)
            self.close_with_error(error)
        else:
            # Proton does not validate everything it decodes, such as UTF-8 in names or the nesting of maps.
            _log.info("namespace %s: a frame cannot be read: %s", name, type(error).__name__)
            self.close_with_error(FrameUnreadable(f"a frame cannot be read: {type(error).__name__}"))

    def _handle_events(self) -> None:
        collector, handlers = self._raw_collector, self._HANDLERS
        try:
            while not self.closed and (event := _peek_event(collector)):
                handler = handlers.get(_type_of(event))
                if handler is not None:
                    handler(self, event)
                _pop_event(collector)
        except _FATAL_ERRORS as error:
            self._close_for(error)

    def _dispatch_range(self, settled: Mapping[proton.Handle, Sequence[proton.Handle]]) -> None:
        for link, deliveries in settled.items():
            handler = self._links.handler(link)
            if handler is not None:
                self._monitor.active_links.add(link)
                handler.on_dispositions(deliveries)

    def _on_delivery(self, event: Any) -> None:
        delivery = lib.pn_event_delivery(event)
        link = lib.pn_delivery_link(delivery)
        if self._range is not None:
            self._range.setdefault(link, []).append(delivery)
            return
        handler = self._links.handler(link)
        if handler is not None:
            self._monitor.active_links.add(link)
            handler.on_delivery(delivery)
        else:
            proton.discard(link)

    def _on_flow(self, event: Any) -> None:
        link = lib.pn_event_link(event)
        handler = self._links.handler(link)
        if handler is not None:
            self._monitor.active_links.add(link)
            handler.on_flow()

    def _on_connection_open(self, event: Any) -> None:  # noqa: ARG002 - there is only one connection
        if self._padder is None and needs_padding(remote_properties(self._connection)):
            self._padder = FramePadder()
        self._connection.container = self.container
        self._connection.open()
        self._monitor.connection_opened()
        self._tick()

    def _on_connection_close(self, event: Any) -> None:  # noqa: ARG002 - there is only one connection
        self._close_links()
        self._connection.close()

    def _on_transport_error(self, event: Any) -> None:  # noqa: ARG002 - there is only one transport
        condition = self._transport.condition
        reason = "unknown error" if condition is None else f"{condition.name}: {condition.description}"
        # Not a warning: the Python client ends each connection by detaching a link of a session that it has ended.
        _log.debug("namespace %s: connection dropped: %s", self.broker.namespace.name, reason)

    def _tick(self) -> None:
        """Let Proton send heartbeats at the client's rate and close the connection after its idle timeout."""
        loop = asyncio.get_running_loop()
        if self.frozen:
            self._heartbeat = loop.call_later(_SECONDS_AFTER_FREEZE, self._on_heartbeat)
            return
        deadline = self._transport.tick(loop.time())
        if deadline > 0:
            self._heartbeat = loop.call_at(deadline, self._on_heartbeat)

    def _on_heartbeat(self) -> None:
        self._tick()
        self._handle_events()
        self.flush()

    _HANDLERS: ClassVar[dict[int, Callable[[AmqpConnection, Any], None]]] = {
        lib.PN_DELIVERY: _on_delivery,
        lib.PN_LINK_FLOW: _on_flow,
        lib.PN_CONNECTION_REMOTE_OPEN: _on_connection_open,
        lib.PN_SESSION_REMOTE_OPEN: LinkEndpoints.on_session_open,
        lib.PN_LINK_REMOTE_OPEN: LinkEndpoints.on_link_open,
        lib.PN_LINK_REMOTE_CLOSE: LinkEndpoints.on_link_close,
        lib.PN_LINK_REMOTE_DETACH: LinkEndpoints.on_link_close,
        lib.PN_SESSION_REMOTE_CLOSE: LinkEndpoints.on_session_close,
        lib.PN_CONNECTION_REMOTE_CLOSE: _on_connection_close,
        lib.PN_TRANSPORT_ERROR: _on_transport_error,
    }
