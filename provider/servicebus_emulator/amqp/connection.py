"""One AMQP connection: bytes in, Proton's events to the links, bytes out.

Qpid Proton's engine (Connection, Transport, Collector) is driven by an asyncio protocol. Bytes leave at
two moments only: when bytes came in (for what opens, closes and keeps alive), and at the end of a turn of
the broker, when what they tell is durable.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any, ClassVar, Final, cast

from cproton import ffi, lib
from proton import Collector, Connection, DataException, Endpoint, Link, Session, Transport

from servicebus_emulator.amqp import proton
from servicebus_emulator.amqp.broker import Broker
from servicebus_emulator.amqp.claims import Claims
from servicebus_emulator.amqp.ends import CHANNEL_MAX, AnsweringEnd, Ends, LinkEnd
from servicebus_emulator.amqp.patience import Patience
from servicebus_emulator.amqp.request_order import RequestOrder
from servicebus_emulator.amqp.watch import ConnectionWatch
from servicebus_emulator.amqp.wire import Wire
from servicebus_emulator.engine.errors import BrokerError
from servicebus_emulator.faults import Pace

__all__ = ["AmqpConnection"]

# As the service says in its Open and Begin frames.
_MAX_FRAME_SIZE: Final = 64 * 1024
_SESSION_WINDOW: Final = 5000
# A connection that was frozen has this long to be heard again before it counts as silent.
_AFTER_A_FREEZE: Final = 5.0
_UNREADABLE: Final = (UnicodeDecodeError, RecursionError, DataException)
_CHARACTERS: Final = ffi.typeof("char[]")
_DEFAULT_PATIENCE: Final = Patience()

_log = logging.getLogger(__name__)


class FrameUnreadable(BrokerError):  # noqa: N818 - a refusal is named for what was refused
    """A frame holds what cannot be decoded."""

    condition = "amqp:decode-error"


class AmqpConnection(asyncio.Protocol):
    """Serves one client.

    :param broker: the namespace at work.
    :param attach: makes this side of a link that the client attaches, or raises why not; None when the
        answer comes later, by :meth:`complete_attach` or :meth:`refuse_attach`.
    :param patience: how long the client is waited for.
    :ivar congested: whether the client reads more slowly than it is sent to.
    :ivar closed: whether the connection is gone.
    :ivar answer_ends: the links on which the client receives answers to requests.
    :ivar claims: what the client may do.
    """

    def __init__(
        self,
        broker: Broker,
        *,
        attach: Callable[[AmqpConnection, Link], LinkEnd | None],
        patience: Patience = _DEFAULT_PATIENCE,
    ) -> None:
        self.broker = broker
        self.congested = False
        self.closed = False
        self.answer_ends: list[AnsweringEnd] = []
        self.claims = Claims(self, namespace=broker.namespace, guard=broker.guard)
        self._attach = attach
        self._ends = Ends()
        self._wire: Wire | None = None
        self._watch = ConnectionWatch(self, patience=patience)
        self._heartbeat: asyncio.TimerHandle | None = None
        self._flush_due = False
        self._collector = Collector()
        self._connection = Connection()
        self._connection.collect(self._collector)
        self._transport = Transport(Transport.SERVER)
        self._transport.max_frame_size = _MAX_FRAME_SIZE
        self._transport.channel_max = CHANNEL_MAX
        self._transport.idle_timeout = 0 if patience.silence_seconds is None else patience.silence_seconds
        sasl = self._transport.sasl()
        sasl.allowed_mechs("ANONYMOUS")
        self._transport.bind(self._connection)
        self._raw_transport = self._transport._impl  # noqa: SLF001 - the only door to what Proton wraps
        self._raw_collector = self._collector._impl  # noqa: SLF001

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to serve."""
        order = RequestOrder(self._feed, max_frame_size=_MAX_FRAME_SIZE)
        self._wire = Wire(cast("asyncio.Transport", transport), feed=order.take)
        self._watch.begin()
        self.broker.opened(self)
        self.flush()

    def data_received(self, data: bytes) -> None:
        """Feed Proton, and hand out what it makes of it."""
        if self._wire is not None:
            self._wire.arrived(data)

    def _feed(self, data: bytes) -> None:
        self.broker.begin_arrival()
        self._flush_due = True
        try:
            self._read(memoryview(data))
        finally:
            self.broker.end_arrival()
        if self._flush_due:
            # There was no turn, or it had nothing to tell this client.
            self.flush()

    def _read(self, view: memoryview) -> None:
        while len(view) > 0 and not self.closed:
            capacity = lib.pn_transport_capacity(self._raw_transport)
            if capacity <= 0:
                break
            size = min(capacity, len(view))
            lib.pn_transport_push(self._raw_transport, ffi.from_buffer(view[:size]), size)
            view = view[size:]
            self._handle_events()

    def eof_received(self) -> bool:
        """Close: a client that sends no more is gone."""
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything the client held.

        Nothing that is left behind refers to itself: Proton's buffers go with the last reference, not when Python
        next looks for garbage, which it seldom does.
        """
        if exc is not None:
            _log.debug("connection lost: %s", exc)
        self._leave()
        if self._wire is not None:
            self._wire.stop()
            self._wire = None
        # Before anything of it is freed: a client can have Proton's transport point to sessions of which it is not
        # told when they go.
        self._transport.unbind()
        self.broker.left(self)

    def _leave(self) -> None:
        """Serve the client no longer, from now on: what it says is not read, and what it held is free for others."""
        self.closed = True
        self._watch.stop()
        if self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None
        self._release_all()
        self.claims.forget_all()

    def _release_all(self) -> None:
        for key, _ in self._ends.held:
            self._release(key)

    def pause_writing(self) -> None:
        """Stop handing out messages until the client has read what is on its way."""
        self.congested = True

    def resume_writing(self) -> None:
        """Go on handing out messages."""
        if self._wire is not None:
            self._wire.heard()
            if self._wire.frozen:
                return
        self.congested = False
        for _, end in self._ends.held:
            end.flowed()

    # The broker's side

    def flush(self) -> None:
        """Send the bytes that Proton has ready."""
        wire = self._wire
        self._flush_due = False
        if wire is None or self.closed:
            return
        transport = self._raw_transport
        pending = lib.pn_transport_pending(transport)
        while pending > 0:
            buffer = ffi.new(_CHARACTERS, pending)
            size = lib.pn_transport_peek(transport, buffer, pending)
            if size <= 0:
                break
            wire.write(ffi.unpack(buffer, size))
            lib.pn_transport_pop(transport, size)
            pending = lib.pn_transport_pending(transport)
        if pending < 0:
            # Nothing more can be said: it is closed, or what the client said is no AMQP.
            self._leave()
            wire.close()
        elif self.congested:
            wire.hear_if_heard()

    def frame(self) -> None:
        """Have Proton write the frames of what was answered so far.

        Otherwise it merges the settlements of neighbouring deliveries into one frame. That is lawful, but
        each of the Python client's concurrent settlements waits for a frame to arrive, and for 0.2 s if a
        frame settled several of them: 450 settlements a second instead of thousands.
        """
        lib.pn_transport_pending(self._raw_transport)

    def abort(self) -> None:
        """Drop the connection and what is ready to be sent on it."""
        self.closed = True
        if self._wire is not None:
            self._wire.abort()

    def close(self) -> None:
        """Close in good order, if the client lets us."""
        if self.closed:
            return
        self._connection.close()
        self.flush()
        self._leave()
        if self._wire is not None:
            self._wire.close()

    # The faults' side

    @property
    def frozen(self) -> bool:
        """Whether nothing is said and nothing heard."""
        return self._wire is not None and self._wire.frozen

    def freeze(self) -> None:
        """Say nothing and hear nothing."""
        self.congested = True
        if self._wire is not None:
            self._wire.freeze()

    def thaw(self) -> None:
        """Go on where it was frozen."""
        if self._heartbeat is not None:
            # The peer was not silent, only unheard.
            self._heartbeat.cancel()
            self._heartbeat = asyncio.get_running_loop().call_later(_AFTER_A_FREEZE, self._beat)
        if self._wire is not None:
            self._wire.thaw()
        self.resume_writing()

    def lose_packets(self, *, lost: bool) -> None:
        """Let nothing that the client sends arrive, or let it arrive again."""
        if self._wire is not None and not self.closed:
            self._wire.lose_packets(lost=lost)

    def set_pace(self, pace: Pace | None) -> None:
        """Let bytes go as fast as that; None = as they come."""
        if self._wire is not None:
            self._wire.set_pace(pace)

    def reset(self) -> None:
        """Break the connection: the client sees it reset."""
        self.closed = True
        if self._wire is not None:
            self._wire.reset()

    def close_with(self, error: BrokerError) -> None:
        """Close, saying why."""
        self._connection.condition = proton.condition_of(error)
        self.close()

    # The links' side

    def detach(self, link: Link, *, error: BrokerError) -> None:
        """End a link with an error."""
        self._release(proton.identity(link._impl))  # noqa: SLF001
        link.condition = proton.condition_of(error)
        link.close()
        self.broker.mark_dirty(self)

    def expel(self, link: Link, *, error: BrokerError) -> None:
        """End a link with an error, or refuse its attach if that was not answered yet."""
        if link.state & Endpoint.LOCAL_ACTIVE:
            self.detach(link, error=error)
        else:
            self.refuse_attach(link, error=error)

    def complete_attach(self, link: Link, end: LinkEnd) -> None:
        """Answer an attach: the link is open."""
        self.hold_attach(link, end)
        link.open()
        end.opened()
        self.broker.mark_dirty(self)

    def refuse_attach(self, link: Link, *, error: BrokerError) -> None:
        """Answer an attach with a refusal: source and target null, then a detach that says why."""
        self._release(proton.identity(link._impl))  # noqa: SLF001
        link.source.type = link.source.UNSPECIFIED
        link.target.type = link.target.UNSPECIFIED
        link.open()
        link.condition = proton.condition_of(error)
        link.close()
        self.broker.mark_dirty(self)

    def hold_attach(self, link: Link, end: LinkEnd) -> None:
        """Keep an attach open that is answered later."""
        handle = link._impl  # noqa: SLF001
        self._ends.hold(proton.identity(handle), end)
        self._watch.link_began(proton.identity(handle), link)

    # Proton's side

    def _handle_events(self) -> None:
        try:
            self._handle_each()
        except BrokerError as error:
            _log.info("namespace %s: a connection is closed: %s", self.broker.namespace.name, error)
            self.close_with(error)
        except _UNREADABLE as error:
            # What Proton hands on it has not always decoded: names that are no UTF-8, maps without end.
            _log.info("namespace %s: a frame cannot be read: %s", self.broker.namespace.name, type(error).__name__)
            self.close_with(FrameUnreadable(f"a frame cannot be read: {type(error).__name__}"))

    def _handle_each(self) -> None:
        collector, handlers = self._raw_collector, self._HANDLERS
        event = lib.pn_collector_peek(collector)
        while event != ffi.NULL and not self.closed:
            handler = handlers.get(lib.pn_event_type(event))
            if handler is not None:
                handler(self, event)
            lib.pn_collector_pop(collector)
            event = lib.pn_collector_peek(collector)

    def _on_delivery(self, event: Any) -> None:
        delivery = lib.pn_event_delivery(event)
        key = proton.identity(lib.pn_delivery_link(delivery))
        end = self._ends.get(key)
        if end is not None:
            self._watch.signs.add(key)
            end.delivered(delivery)

    def _on_flow(self, event: Any) -> None:
        key = proton.identity(lib.pn_event_link(event))
        end = self._ends.get(key)
        if end is not None:
            self._watch.signs.add(key)
            end.flowed()

    def _on_connection_open(self, event: Any) -> None:  # noqa: ARG002 - there is but one connection
        self._connection.container = self.broker.namespace.name
        self._connection.open()
        self._watch.opened()
        self._tick()

    def _on_session_open(self, event: Any) -> None:
        session = lib.pn_event_session(event)
        untouched = bool(lib.pn_session_state(session) & Endpoint.LOCAL_UNINIT)
        self._ends.begin_session(proton.identity(session), untouched=untouched)
        lib.pn_session_set_incoming_capacity(session, _SESSION_WINDOW * _MAX_FRAME_SIZE)
        lib.pn_session_open(session)

    def _on_link_open(self, event: Any) -> None:
        handle = lib.pn_event_link(event)
        session = proton.identity(lib.pn_link_session(handle))
        untouched = bool(lib.pn_link_state(handle) & Endpoint.LOCAL_UNINIT)
        self._ends.begin_link(proton.identity(handle), session=session, untouched=untouched)
        link = Link.wrap(handle)  # type: ignore[no-untyped-call]
        try:
            end = self._attach(self, link)
        except BrokerError as error:
            self.broker.note_refusal(error)
            self.refuse_attach(link, error=error)
            return
        if end is not None:
            self.complete_attach(link, end)

    def _on_link_close(self, event: Any) -> None:
        handle = lib.pn_event_link(event)
        key = proton.identity(handle)
        if not self._ends.end_link(key):
            return
        self._release(key)
        link = Link.wrap(handle)  # type: ignore[no-untyped-call]
        link.close()
        # Freed after the answers that are under way, which may still point to its deliveries.
        self.broker.answer(self, link.free)

    def _on_session_close(self, event: Any) -> None:
        session = Session.wrap(lib.pn_event_session(event))  # type: ignore[no-untyped-call]
        links = self._ends.end_session(proton.identity(session._impl))  # noqa: SLF001
        if links is None:
            return
        for key in links:
            self._ends.end_link(key)
            self._release(key)
        session.close()
        self.broker.answer(self, session.free)

    def _on_connection_close(self, event: Any) -> None:  # noqa: ARG002 - there is but one connection
        self._release_all()
        self._connection.close()

    def _on_transport_error(self, event: Any) -> None:  # noqa: ARG002 - there is but one transport
        condition = self._transport.condition
        reason = "unknown error" if condition is None else f"{condition.name}: {condition.description}"
        # Not a warning: the Python client ends each connection by detaching a link of a session it has ended.
        _log.debug("namespace %s: connection dropped: %s", self.broker.namespace.name, reason)

    def _release(self, key: int) -> None:
        self.claims.forget(key)
        self._watch.link_ended(key)
        end = self._ends.release(key)
        if end is not None:
            end.closed()

    def _tick(self) -> None:
        """Let Proton keep the connection alive as often as the peer asked for, and notice when the peer is gone."""
        loop = asyncio.get_running_loop()
        if self.frozen:
            self._heartbeat = loop.call_later(_AFTER_A_FREEZE, self._beat)
            return
        deadline = self._transport.tick(loop.time())
        if deadline > 0:
            self._heartbeat = loop.call_at(deadline, self._beat)

    def _beat(self) -> None:
        self._tick()
        self._handle_events()
        self.flush()

    _HANDLERS: ClassVar[dict[int, Callable[[AmqpConnection, Any], None]]] = {
        lib.PN_DELIVERY: _on_delivery,
        lib.PN_LINK_FLOW: _on_flow,
        lib.PN_CONNECTION_REMOTE_OPEN: _on_connection_open,
        lib.PN_SESSION_REMOTE_OPEN: _on_session_open,
        lib.PN_LINK_REMOTE_OPEN: _on_link_open,
        lib.PN_LINK_REMOTE_CLOSE: _on_link_close,
        lib.PN_LINK_REMOTE_DETACH: _on_link_close,
        lib.PN_SESSION_REMOTE_CLOSE: _on_session_close,
        lib.PN_CONNECTION_REMOTE_CLOSE: _on_connection_close,
        lib.PN_TRANSPORT_ERROR: _on_transport_error,
    }
