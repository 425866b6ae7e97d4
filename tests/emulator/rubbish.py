"""What nobody should send: random bytes, broken frames, hostile lengths, deep nesting, a million properties.

``python -m tests.emulator.rubbish --seconds 600 --seed 1`` throws it at an embedded Service Bus for as long as one
likes; the tests do so for a few seconds, with a fixed seed.
"""

from __future__ import annotations

import argparse
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random
from typing import Self

import psutil
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from servicebus_emulator import EmulatorProcess, ServedNamespace
from servicebus_emulator.engine.descriptions import RuleDescription, SqlAction, SqlFilter

SASL = b"AMQP\x03\x01\x00\x00"
AMQP = b"AMQP\x00\x01\x00\x00"
NULL = b"\x40"
DEPTH = 50_000
MANY = 1_000_000
TARGETS = ("flights", "news", "flights/$management", "$cbs", "news/Subscriptions/late/$management")


def text(value: str) -> bytes:
    encoded = value.encode()
    return b"\xb1" + struct.pack(">I", len(encoded)) + encoded


def symbol(value: str) -> bytes:
    return b"\xa3" + bytes([len(value)]) + value.encode()


def compound(code: int, items: bytes, *, count: int) -> bytes:
    """Return a list (0xd0) or map (0xd1)."""
    return bytes([code]) + struct.pack(">II", len(items) + 4, count) + items


def described(code: int, *fields: bytes) -> bytes:
    return b"\x00\x53" + bytes([code]) + compound(0xD0, b"".join(fields), count=len(fields))


def frame(body: bytes, *, kind: int = 0, channel: int = 0) -> bytes:
    return struct.pack(">IBBH", len(body) + 8, 2, kind, channel) + body


def nested(depth: int) -> bytes:
    """Return a list in a list in a list."""
    whole = NULL
    levels = []
    size = len(whole)
    for _ in range(depth):
        levels.append(b"\xd0" + struct.pack(">II", size + 4, 1))
        size += 9
    return b"".join(reversed(levels)) + whole


def crowded(count: int) -> bytes:
    """Return a map with very many entries."""
    items = b"".join(b"\xa1\x07" + b"%07d" % number + b"\x56\x01" for number in range(count))
    return compound(0xD1, items, count=2 * count)


def section(code: int, value: bytes) -> bytes:
    return b"\x00\x53" + bytes([code]) + value


def hostile_values(random: Random) -> Iterator[bytes]:
    """Yield values that promise more than they hold, or hold more than anybody wants."""
    huge = struct.pack(">I", 0xFFFFFFFF)
    yield b"\xd0" + huge + huge
    yield b"\xd1" + huge + struct.pack(">I", 2)
    yield b"\xb0" + huge + b"x"
    yield b"\xb1" + struct.pack(">I", 0x7FFFFFFF)
    # Elements that take no room: four thousand million of them in fourteen bytes.
    for element in (0x40, 0x41, 0x43, 0x45):
        yield b"\xf0" + struct.pack(">II", 5, 0xFFFFFFFF) + bytes([element])
        yield b"\xf0" + struct.pack(">II", 5, 0x00FFFFFF) + bytes([element])
    yield compound(0xD1, NULL * 3, count=3)
    yield compound(0xD1, nested(100) + NULL, count=2)
    yield nested(DEPTH)
    # A description of a description of a description.
    yield b"\x00" * DEPTH
    yield b"\x00\x53\x75" * DEPTH
    yield b"\xf0" * DEPTH
    yield random.randbytes(random.randrange(1, 4000))


def hostile_messages(random: Random) -> Iterator[bytes]:
    """Yield messages of which a part, or all, is no message."""
    for value in hostile_values(random):
        for code in (0x70, 0x71, 0x72, 0x73, 0x74, 0x77, 0x78):
            yield section(code, value) + section(0x77, text("x"))
        yield value
    body = section(0x77, text("x"))
    yield section(0x74, crowded(200)) + body
    yield section(0x74, compound(0xD1, text("k") + nested(DEPTH), count=2)) + body
    yield body * 5000
    yield section(0x75, b"\xa0\x02ab") * 5000
    yield b""


class Caller:
    """A client that sends what it likes."""

    def __init__(self, place: ServedNamespace, *, port: int) -> None:
        self._socket = socket.create_connection((place.host, port), timeout=5)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def say(self, data: bytes) -> None:
        with suppress(ConnectionError, TimeoutError):
            self._socket.sendall(data)

    def hear(self, seconds: float = 0.02) -> bytes:
        """Return what is said within a while."""
        heard = b""
        self._socket.settimeout(seconds)
        with suppress(ConnectionError, TimeoutError):
            while chunk := self._socket.recv(65536):
                heard += chunk
        self._socket.settimeout(5)
        return heard

    def open(self) -> None:
        self.say(SASL + frame(described(0x41, symbol("ANONYMOUS")), kind=1))
        self.hear()
        self.say(AMQP + frame(described(0x10, text("rubbish"), text("localhost"), b"\x70\x00\x10\x00\x00")))
        self.say(frame(described(0x11, NULL, b"\x43", b"\x52\xff", b"\x52\xff")))
        self.hear()

    def attach(self, address: str, *, extra: bytes = NULL) -> None:
        source = described(0x28, text("me"))
        target = described(0x29, text(address))
        rest = (NULL, NULL, b"\x43", NULL, NULL, NULL, extra)
        self.say(frame(described(0x12, text("link"), b"\x43", b"\x42", NULL, NULL, source, target, *rest)))
        self.hear()

    def transfer(self, payload: bytes, *, number: int) -> None:
        identity = b"\x70" + struct.pack(">I", number)
        head = described(0x14, b"\x43", identity, b"\xa0\x04" + struct.pack(">I", number), b"\x43", b"\x42")
        more = described(0x14, b"\x43", identity, b"\xa0\x04" + struct.pack(">I", number), b"\x43", b"\x42", b"\x41")
        pieces = [payload[start : start + 60_000] for start in range(0, len(payload), 60_000)] or [b""]
        for piece in pieces[:-1]:
            self.say(frame(more + piece))
        self.say(frame(head + pieces[-1]))


def random_bytes(place: ServedNamespace, random: Random) -> None:
    for port in (place.amqp_port, place.admin_port):
        with Caller(place, port=port) as caller:
            caller.say(random.choice((b"", SASL, AMQP, SASL + AMQP, b"GET / HTTP/1.1\r\n", b"\x16\x03\x01")))
            caller.say(random.randbytes(random.randrange(1, 5000)))
            caller.hear()


def broken_frames(place: ServedNamespace, random: Random) -> None:
    """Say something sensible with some of its bytes changed, left out or doubled."""
    sane = b"".join(
        (
            SASL + frame(described(0x41, symbol("ANONYMOUS")), kind=1),
            AMQP + frame(described(0x10, text("rubbish"), text("localhost"))),
            frame(described(0x11, NULL, b"\x43", b"\x52\xff", b"\x52\xff")),
            frame(
                described(
                    0x12, text("l"), b"\x43", b"\x42", NULL, NULL, described(0x28), described(0x29, text("flights"))
                )
            ),
            frame(described(0x14, b"\x43", b"\x43", b"\xa0\x01a", b"\x43", b"\x42") + section(0x77, text("x"))),
            frame(described(0x13, b"\x43", b"\x52\xff", b"\x43", b"\x52\xff", b"\x43", b"\x43", b"\x52\x0a")),
            frame(described(0x16, b"\x43", b"\x41")) + frame(described(0x17)) + frame(described(0x18)),
        )
    )
    changed = bytearray(sane)
    for _ in range(random.randrange(1, 6)):
        position = random.randrange(len(changed))
        match random.randrange(3):
            case 0:
                changed[position] = random.randrange(256)
            case 1:
                del changed[position : position + random.randrange(1, 9)]
            case _:
                changed[position:position] = changed[position : position + random.randrange(1, 30)]
    with Caller(place, port=place.amqp_port) as caller:
        caller.say(bytes(changed))
        caller.hear()


def hostile_frames(place: ServedNamespace, random: Random) -> None:
    """Frames whose size, and fields whose value, cannot be."""
    for size in (0, 7, 8, 0x7FFFFFFF, 0xFFFFFFFF):
        with Caller(place, port=place.amqp_port) as caller:
            caller.open()
            caller.say(struct.pack(">IBBH", size, random.choice((0, 1, 2, 255)), 0, 65535) + b"x" * 200)
            caller.hear()
    for value in hostile_values(random):
        with Caller(place, port=place.amqp_port) as caller:
            caller.open()
            caller.attach("flights", extra=value[:60_000])
            code = random.choice((0x10, 0x11, 0x12, 0x13, 0x15, 0x16, 0x17, 0x18))
            caller.say(frame(b"\x00\x53" + bytes([code]) + value[:60_000]))
            caller.hear()


def messages(place: ServedNamespace, random: Random) -> None:
    """Messages and requests that cannot be read, to all that reads them."""
    for target in TARGETS:
        with Caller(place, port=place.amqp_port) as caller:
            caller.open()
            caller.attach(target)
            for number, payload in enumerate(hostile_messages(random)):
                caller.transfer(payload, number=number)
            caller.hear(0.1)


def a_million_properties(place: ServedNamespace, random: Random) -> None:  # noqa: ARG001 - all kinds are called alike
    with Caller(place, port=place.amqp_port) as caller:
        caller.open()
        caller.attach("news")
        caller.transfer(section(0x74, crowded(MANY)) + section(0x77, text("x")), number=0)
        caller.hear(3)


def requests(place: ServedNamespace, random: Random) -> None:
    """Requests over HTTP that are too long, too deep, or none."""
    deep = b"<a>" * DEPTH
    entry = b'<entry xmlns="http://www.w3.org/2005/Atom"><content>' + deep
    bomb = b'<!DOCTYPE a [<!ENTITY a "x"><!ENTITY b "&a;&a;">]><entry>&b;</entry>'
    bodies = (deep, entry, bomb, b"[" * DEPTH, random.randbytes(2000), b"")
    for path in (
        "/q?api-version=2021-05",
        "/$faults",
        "/$time",
        "/health",
        "/" + "a" * 7000,
        "/%ff%00",
        "/q?$skip=9" * 50,
    ):
        for body in bodies:
            with Caller(place, port=place.admin_port) as caller:
                head = f"{random.choice(('PUT', 'POST', 'GET', 'DELETE'))} {path} HTTP/1.1\r\nHost: x\r\n"
                length = random.choice((len(body), len(body), 2**40))
                caller.say(f"{head}Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n".encode() + body)
                caller.hear()


KINDS: tuple[Callable[[ServedNamespace, Random], None], ...] = (
    random_bytes,
    broken_frames,
    hostile_frames,
    messages,
    a_million_properties,
    requests,
)


def luck(seed: int) -> Random:
    """Return the chance by which rubbish is made, the same for the same seed."""
    return Random(seed)  # noqa: S311 - nothing here is secret


def prepare(place: ServedNamespace) -> None:
    """Create what can be aimed at: a queue, and a topic whose rules read the properties of large messages."""
    place.create_queue("flights", max_message_size_in_kilobytes=102_400)
    place.create_queue("calm")
    place.create_topic("news", max_message_size_in_kilobytes=102_400)
    for name, expression in (("late", "minutes > 60"), ("all", "minutes IS NULL OR sys.label IS NULL")):
        rule = RuleDescription(
            name, filter=SqlFilter(expression=expression), action=SqlAction(expression="SET seen = 1")
        )
        place.create_subscription("news", name, rules=(rule,))


def clear_away(place: ServedNamespace) -> None:
    """Delete what could be aimed at, with what was stored there."""
    for path in ("flights", "calm", "news"):
        place.delete(path)


def still_works(place: ServedNamespace) -> bool:
    """Send, receive and settle as if nothing had been."""
    with ServiceBusClient.from_connection_string(place.connection_string) as client:
        with client.get_queue_sender("calm") as sender:
            sender.send_messages(ServiceBusMessage("x"))
        with client.get_queue_receiver("calm", max_wait_time=5) as receiver:
            (message,) = receiver.receive_messages(1)
            receiver.complete_message(message)
    return bool(place.health()["status"] == "ok")


def main() -> int:
    parser = argparse.ArgumentParser(description="Throw rubbish at an embedded Service Bus.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    random = luck(options.seed)
    with EmulatorProcess(["contoso"]) as process:
        place = process["contoso"]
        meter = psutil.Process(process.pid)
        until = time.monotonic() + options.seconds
        while time.monotonic() < until:
            prepare(place)
            for kind in KINDS:
                kind(place, random)
            works = still_works(place)
            clear_away(place)
            print(f"works={works} resident={meter.memory_info().rss >> 20} MB", flush=True)  # noqa: T201 - a command
    return 0


if __name__ == "__main__":
    sys.exit(main())
