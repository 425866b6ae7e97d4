"""A low-level AMQP client: Proton on its own socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from proton import Collector, Connection, Delivery, Endpoint, Event, Link, Session, Transport

from servicebus_emulator import HostedNamespace

TIMEOUT = 8.0


class Peer:
    """One connection.

    :ivar seen: the types of what happened, in order.
    :ivar received: the deliveries that have arrived, with their bytes.
    :ivar answered: the outcomes of what was sent, by tag.
    :ivar gone: whether the other side has closed the socket.
    :ivar recorded: the bytes received, if they are to be recorded.
    :ivar reads: whether deliveries are read; otherwise the test reads them.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.collector = Collector()
        self.connection = Connection()
        self.connection.collect(self.collector)
        self.transport = Transport(Transport.CLIENT)
        self.transport.sasl().allowed_mechs("ANONYMOUS")
        self.seen: list[str] = []
        self.received: list[tuple[Delivery, bytes]] = []
        self.answered: dict[str, int] = {}
        self.gone = False
        self.recorded: bytearray | None = None
        self.reads = True

    def begin(self) -> Session:
        """Open the connection and a session."""
        self.transport.bind(self.connection)
        self.connection.container = "peer"
        self.connection.hostname = "localhost"
        self.connection.open()
        session = self.connection.session()
        session.open()
        return session

    def sender(self, session: Session, path: str) -> Link:
        link = session.sender(f"sender-{path}-{len(self.seen)}")
        link.target.address = path
        link.open()
        return link

    def receiver(self, session: Session, path: str) -> Link:
        link = session.receiver(f"receiver-{path}-{len(self.seen)}")
        link.source.address = path
        link.open()
        return link

    def push(self) -> None:
        """Write what Proton has ready."""
        while (pending := self.transport.pending()) > 0:
            data = bytes(self.transport.peek(pending) or b"")
            self.transport.pop(len(data))
            self.writer.write(data)

    async def pump(self, *, seconds: float = TIMEOUT) -> None:
        """Write what is ready, and take in what arrives next."""
        self.push()
        data = await asyncio.wait_for(self.reader.read(1 << 18), seconds)
        if len(data) == 0:
            self.gone = True
            return
        if self.recorded is not None:
            self.recorded += data
        while len(data) > 0:
            capacity = self.transport.capacity()
            if capacity <= 0:
                break
            self.transport.push(data[:capacity])
            data = data[capacity:]
            self._note()
        self.push()

    async def until(self, reached: Callable[[], bool], *, seconds: float = TIMEOUT) -> None:
        """Go on until something holds, or the other side has gone.

        :raises TimeoutError: when it takes too long.
        """
        async with asyncio.timeout(seconds):
            while not reached() and not self.gone:
                await self.pump(seconds=seconds)

    async def quiet(self, *, seconds: float = 0.2) -> None:
        """Go on until nothing has arrived for a while."""
        with suppress(TimeoutError):
            while not self.gone:
                await self.pump(seconds=seconds)

    def _note(self) -> None:
        while (event := self.collector.peek()) is not None:
            self.seen.append(event.type.name)
            if event.type == Event.DELIVERY and event.delivery is not None:
                self._note_delivery(event.delivery)
            self.collector.pop()

    def _note_delivery(self, delivery: Delivery) -> None:
        link = delivery.link
        if link.is_sender:
            if delivery.updated:
                self.answered[delivery.tag] = int(delivery.remote_state)
                delivery.settle()
        elif self.reads and delivery.readable and not delivery.partial:
            self.received.append((delivery, link.recv(delivery.pending) or b""))
            link.advance()


@asynccontextmanager
async def connected(hosted: HostedNamespace) -> AsyncIterator[Peer]:
    """Connect a peer that has sent nothing yet."""
    reader, writer = await asyncio.open_connection(hosted.host, hosted.amqp_port)
    try:
        yield Peer(reader, writer)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def is_open(endpoint: Connection | Session | Link) -> bool:
    return bool(endpoint.state & Endpoint.REMOTE_ACTIVE)


def is_closed(endpoint: Connection | Session | Link) -> bool:
    return bool(endpoint.state & Endpoint.REMOTE_CLOSED)


def has_received(peer: Peer, count: int) -> bool:
    return len(peer.received) == count


def condition_of(endpoint: Connection | Session | Link) -> str:
    """Return why the service closed an endpoint."""
    condition = endpoint.remote_condition
    assert condition is not None
    return str(condition.name)


def encoded_message(size: int = 1) -> bytes:
    return b"\x00Su\xb0" + size.to_bytes(4, "big") + bytes(size)


async def send_messages(peer: Peer, sender: Link, *, count: int = 1, size: int = 1, seconds: float = TIMEOUT) -> None:
    """Send messages and wait until they are accepted."""
    await peer.until(lambda: sender.credit > 0, seconds=seconds)
    tags = [f"{len(peer.answered)}-{number}" for number in range(count)]
    for tag in tags:
        sender.delivery(tag)
        sender.send(encoded_message(size))
        sender.advance()
    await peer.until(lambda: peer.answered.keys() >= set(tags), seconds=seconds)
    assert {peer.answered[tag] for tag in tags} == {Delivery.ACCEPTED}


async def attach_links(
    peer: Peer, *, session: Session | None = None, credit: int = 0, seconds: float = TIMEOUT
) -> tuple[Link, Link]:
    """Attach a sender and a receiver of the queue "flights", and wait until both are open."""
    used = peer.begin() if session is None else session
    sender, receiver = peer.sender(used, "flights"), peer.receiver(used, "flights")
    if credit > 0:
        receiver.flow(credit)
    await peer.until(lambda: sender.credit > 0 and is_open(receiver), seconds=seconds)
    return sender, receiver
