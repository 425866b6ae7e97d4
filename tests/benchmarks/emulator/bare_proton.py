"""Receives transfers with Qpid Proton and no broker: the minimum cost in Python on this machine."""

from __future__ import annotations

from time import process_time
from typing import Any

from cproton import ffi, lib
from proton import Collector, Connection, Message, Transport

from servicebus_emulator.amqp.codec import proton_fast_path as proton


def bare_receive_cost(body: bytes, *, batch_size: int, batches: int) -> float:
    """Return the CPU seconds per message of reading and accepting batches."""
    client, server = _Endpoint(Transport.CLIENT), _Endpoint(Transport.SERVER)
    client.connection.open()
    session = client.connection.session()
    session.open()
    sender = session.sender("bare")
    sender.open()
    _exchange(client, server)
    message = Message(body=body, inferred=True, id="0" * 36).encode()
    batch = (b"\x00\x53\x75\xb0" + len(message).to_bytes(4, "big") + message) * batch_size
    cpu_seconds = 0.0
    for number in range(batches):
        sender.delivery(str(number))
        sender.stream(batch)
        sender.advance()
        cpu_seconds += _exchange(client, server)
    if server.received_bytes != batches * len(batch):
        raise RuntimeError(f"received {server.received_bytes} bytes of {batches} batches of {len(batch)}")
    return cpu_seconds / (batch_size * batches)


class _Endpoint:
    def __init__(self, mode: int) -> None:
        self.connection = Connection()
        self._collector = Collector()
        self.connection.collect(self._collector)
        self._wrapped = Transport(mode)
        self._wrapped.bind(self.connection)
        self._transport = self._wrapped._impl
        self.received_bytes = 0

    def output(self) -> bytes:
        """Return the bytes to send."""
        pending_bytes = b""
        while (pending := lib.pn_transport_pending(self._transport)) > 0:
            buffer = bytearray(pending)
            size = lib.pn_transport_peek(self._transport, ffi.from_buffer(buffer), pending)
            lib.pn_transport_pop(self._transport, size)
            pending_bytes += buffer[:size]
        return pending_bytes

    def feed(self, data: bytes) -> None:
        """Process bytes from the other end, and read the transfers in them."""
        view = memoryview(data)
        while len(view) > 0:
            size = min(lib.pn_transport_capacity(self._transport), len(view))
            lib.pn_transport_push(self._transport, ffi.from_buffer(view[:size]), size)
            view = view[size:]
            self._handle_events()

    def _handle_events(self) -> None:
        collector = self._collector._impl
        while (event := lib.pn_collector_peek(collector)) != ffi.NULL:
            kind = lib.pn_event_type(event)
            if kind == lib.PN_DELIVERY:
                self._receive(lib.pn_event_delivery(event))
            elif kind == lib.PN_CONNECTION_REMOTE_OPEN:
                lib.pn_connection_open(lib.pn_event_connection(event))
            elif kind == lib.PN_SESSION_REMOTE_OPEN:
                lib.pn_session_open(lib.pn_event_session(event))
            elif kind == lib.PN_LINK_REMOTE_OPEN:
                lib.pn_link_open(lib.pn_event_link(event))
                lib.pn_link_flow(lib.pn_event_link(event), 1_000)
            lib.pn_collector_pop(collector)

    def _receive(self, delivery: Any) -> None:
        link = lib.pn_delivery_link(delivery)
        if not lib.pn_link_is_sender(link) and proton.is_complete(delivery):
            self.received_bytes += len(proton.read(link, delivery))
            proton.advance(link)
            proton.accept(delivery)


def _exchange(client: _Endpoint, server: _Endpoint) -> float:
    """Exchange bytes until there are none; return the CPU seconds of the server."""
    cpu_seconds = 0.0
    while len(data := client.output()) > 0:
        started = process_time()
        server.feed(data)
        response = server.output()
        cpu_seconds += process_time() - started
        client.feed(response)
    return cpu_seconds
