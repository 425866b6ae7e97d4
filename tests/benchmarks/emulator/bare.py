"""Qpid Proton without a broker: the least that taking in a transfer costs in this language, on this machine."""

from __future__ import annotations

from time import process_time
from typing import Any

from cproton import ffi, lib
from proton import Collector, Connection, Message, Transport

from servicebus_emulator.amqp import proton

__all__ = ["bare_ingest"]


def bare_ingest(body: bytes, *, batch_size: int, batches: int) -> float:
    """Return the CPU time per message, in seconds, of reading and accepting batches and doing nothing with them."""
    client, server = _Peer(Transport.CLIENT), _Peer(Transport.SERVER)
    client.connection.open()
    session = client.connection.session()
    session.open()
    sender = session.sender("bare")
    sender.open()
    _talk(client, server)
    message = Message(body=body, inferred=True, id="0" * 36).encode()
    batch = (b"\x00\x53\x75\xb0" + len(message).to_bytes(4, "big") + message) * batch_size
    spent = 0.0
    for number in range(batches):
        sender.delivery(str(number))
        sender.stream(batch)
        sender.advance()
        spent += _talk(client, server)
    if server.taken_in != batches * len(batch):
        raise RuntimeError(f"{server.taken_in} bytes arrived of {batches} batches of {len(batch)}")
    return spent / (batch_size * batches)


class _Peer:
    """One end of a connection."""

    def __init__(self, mode: int) -> None:
        self.connection = Connection()
        self._collector = Collector()
        self.connection.collect(self._collector)
        self._wrapped = Transport(mode)
        self._wrapped.bind(self.connection)
        self._transport = self._wrapped._impl
        self.taken_in = 0

    def ready(self) -> bytes:
        """Return the bytes that are to be sent."""
        found = b""
        while (pending := lib.pn_transport_pending(self._transport)) > 0:
            buffer = bytearray(pending)
            size = lib.pn_transport_peek(self._transport, ffi.from_buffer(buffer), pending)
            lib.pn_transport_pop(self._transport, size)
            found += buffer[:size]
        return found

    def feed(self, data: bytes) -> None:
        """Take bytes from the other end, and read the transfers in them."""
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
                self._take_in(lib.pn_event_delivery(event))
            elif kind == lib.PN_CONNECTION_REMOTE_OPEN:
                lib.pn_connection_open(lib.pn_event_connection(event))
            elif kind == lib.PN_SESSION_REMOTE_OPEN:
                lib.pn_session_open(lib.pn_event_session(event))
            elif kind == lib.PN_LINK_REMOTE_OPEN:
                lib.pn_link_open(lib.pn_event_link(event))
                lib.pn_link_flow(lib.pn_event_link(event), 1_000)
            lib.pn_collector_pop(collector)

    def _take_in(self, delivery: Any) -> None:
        link = lib.pn_delivery_link(delivery)
        if not lib.pn_link_is_sender(link) and proton.is_complete(delivery):
            self.taken_in += len(proton.read(link, delivery))
            proton.advance(link)
            proton.accept(delivery)


def _talk(client: _Peer, server: _Peer) -> float:
    """Carry bytes both ways until there are none; return the CPU time that the server took, in seconds."""
    spent = 0.0
    while len(data := client.ready()) > 0:
        begun = process_time()
        server.feed(data)
        answer = server.ready()
        spent += process_time() - begun
        client.feed(answer)
    return spent
