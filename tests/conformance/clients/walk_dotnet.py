"""The bytes with which .NET's client opens: WebSocket with a trailing slash, SASL MSSBCBS, a token at $cbs."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import ssl
import time
from urllib.parse import quote

from proton import Collector, Connection, Event, Message, Transport

from tests.conformance.clients.steps import HOST, KEY, POLICY, PORT, step

SASL, AMQP = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
MECHANISMS = (b"MSSBCBS", b"PLAIN", b"ANONYMOUS", b"EXTERNAL")
SASL_INIT = b"\x00\x53\x41\xc0\x0b\x02\xa3\x07MSSBCBS\x40"
AUDIENCE = f"amqps://{HOST}/q"


class WebSocket:
    """A WebSocket of binary messages that do not exceed 64 KB."""

    def __init__(self) -> None:
        context = ssl.create_default_context(cafile=os.environ["SSL_CERT_FILE"])
        self.socket = context.wrap_socket(socket.create_connection(("127.0.0.1", PORT), 10), server_hostname=HOST)
        self.rest = b""

    def upgrade(self) -> bytes:
        request = (
            f"GET /$servicebus/websocket/ HTTP/1.1\r\nHost: {HOST}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {base64.b64encode(bytes(16)).decode()}\r\n"
            "Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
        )
        self.socket.sendall(request.encode())
        while b"\r\n\r\n" not in self.rest:
            self.rest += self.socket.recv(4096)
        head, _, self.rest = self.rest.partition(b"\r\n\r\n")
        return head

    def send(self, data: bytes) -> None:
        for start in range(0, len(data), 60_000):
            part = data[start : start + 60_000]
            length = bytes((0x80 | len(part),)) if len(part) < 126 else b"\xfe" + len(part).to_bytes(2, "big")
            self.socket.sendall(b"\x82" + length + bytes(4) + part)

    def receive(self) -> bytes:
        head = self.take(2)
        length = head[1] & 0x7F
        if length >= 126:
            length = int.from_bytes(self.take(2 if length == 126 else 8), "big")
        return self.take(length)

    def take(self, size: int) -> bytes:
        while len(self.rest) < size:
            data = self.socket.recv(65_536)
            if data == b"":
                raise ConnectionError("the emulator closed the connection")
            self.rest += data
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken


class Engine:
    """Proton's engine behind the WebSocket, after SASL."""

    def __init__(self, web: WebSocket) -> None:
        self.web, self.collector, self.connection = web, Collector(), Connection()
        self.connection.collect(self.collector)
        self.transport = Transport(Transport.CLIENT)
        self.transport.bind(self.connection)
        self.connection.hostname = HOST
        self.replies: list[Message] = []

    def until(self, reached: object) -> None:
        while not reached():
            while (pending := self.transport.pending()) > 0:
                data = bytes(self.transport.peek(pending))
                self.transport.pop(len(data))
                self.web.send(data)
            if reached():
                return
            data = self.web.receive()
            self.transport.push(data)
            while (event := self.collector.peek()) is not None:
                if event.type == Event.DELIVERY and event.delivery.readable and not event.delivery.partial:
                    reply = Message()
                    reply.decode(event.link.recv(event.delivery.pending))
                    event.link.advance()
                    self.replies.append(reply)
                self.collector.pop()


def signature() -> str:
    resource, expires = quote(AUDIENCE, safe=""), int(time.time()) + 300
    digest = hmac.new(KEY.encode(), f"{resource}\n{expires}".encode(), hashlib.sha256).digest()
    return (
        f"SharedAccessSignature sr={resource}&sig={quote(base64.b64encode(digest), safe='')}&se={expires}&skn={POLICY}"
    )


web = WebSocket()
with step("WebSocket at /$servicebus/websocket/"):
    answered = web.upgrade()
    assert answered.startswith(b"HTTP/1.1 101"), answered
    assert b"AMQPWSB10" in answered
with step("SASL MSSBCBS"):
    web.send(SASL)
    offered = web.receive()
    while not all(each in offered for each in MECHANISMS):
        offered += web.receive()
    web.send((8 + len(SASL_INIT)).to_bytes(4, "big") + b"\x02\x01\x00\x00" + SASL_INIT)
    outcome = web.receive()
    assert outcome.endswith(b"\x50\x00\x40"), outcome
engine = Engine(web)
with step("open and begin"):
    engine.connection.open()
    session = engine.connection.session()
    session.open()
    engine.until(lambda: session.state & session.REMOTE_ACTIVE)
with step("a token at $cbs"):
    sender, receiver = session.sender("duplex-out"), session.receiver("duplex-in")
    sender.target.address = sender.source.address = "$cbs"
    receiver.source.address = receiver.target.address = "$cbs"
    sender.open()
    receiver.open()
    receiver.flow(5)
    engine.until(lambda: sender.credit > 0)
    token = Message(body=signature(), id="1", reply_to="$cbs")
    token.properties = {"operation": "put-token", "type": "servicebus.windows.net:sastoken", "name": AUDIENCE}
    sender.delivery("1")
    sender.send(token.encode())
    sender.advance()
    engine.until(lambda: engine.replies)
    status = engine.replies[0].properties["status-code"]
    assert status in (200, 202), engine.replies[0].properties
with step("send"):
    out = session.sender("send")
    out.target.address = "q"
    out.open()
    engine.until(lambda: out.credit > 0)
    delivery = out.delivery("2")
    out.send(Message(body=b"from .NET").encode())
    out.advance()
    engine.until(lambda: delivery.settled)
    assert delivery.remote_state == delivery.ACCEPTED
with step("receive and settle"):
    inward = session.receiver("receive")
    inward.source.address = "q"
    inward.open()
    inward.flow(1)
    engine.until(lambda: len(engine.replies) == 2)
    assert engine.replies[1].body == b"from .NET"
