"""Generates the bytes of hostile clients from a seed and from recordings of real clients."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from functools import cache
from random import Random

Words = list[bytes]
"""The bytes sent on one connection, in pieces; replies are read between them."""

Case = Callable[[Random], Words]
HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
SMALL_ENOUGH = 60_000
NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
EDGES = (0, 1, 7, 8, 0x7F, 0x80, 0xFF, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def frame(performative: bytes, *, channel: int = 0, kind: int = 0) -> bytes:
    return (8 + len(performative)).to_bytes(4, "big") + bytes((2, kind)) + channel.to_bytes(2, "big") + performative


def listed(*items: bytes) -> bytes:
    body = b"".join(items)
    return b"\xd0" + (4 + len(body)).to_bytes(4, "big") + len(items).to_bytes(4, "big") + body


def text(value: str, *, symbol: bool = False) -> bytes:
    encoded = value.encode()
    return (b"\xb3" if symbol else b"\xb1") + len(encoded).to_bytes(4, "big") + encoded


def flag(value: bool) -> bytes:
    return TRUE if value else FALSE


def number(value: int) -> bytes:
    return b"\x70" + value.to_bytes(4, "big")


SASL = SASL_HEADER + frame(b"\x00\x53\x41" + listed(b"\xa3\x09ANONYMOUS"), kind=1)


def open_frame(*properties: bytes) -> bytes:
    return frame(b"\x00\x53\x10" + listed(text("x"), text("localhost"), *([b"\x40"] * 7), *properties))


def begin_frame(*, channel: int = 0) -> bytes:
    return frame(b"\x00\x53\x11" + listed(b"\x40", number(0), number(5000), number(5000)), channel=channel)


COORDINATOR = "(coordinator)"
"""The path that stands for a transaction coordinator."""


def attach(
    path: str,
    *,
    name: str = "link",
    handle: int = 0,
    receiver: bool = False,
    channel: int = 0,
    filters: bytes = NULL,
    more: Sequence[bytes] = (),
) -> bytes:
    terminus = (b"\x00S\x28" if receiver else b"\x00S\x29") + listed(text(path), *[NULL] * 6, filters)
    if path == COORDINATOR:
        terminus = b"\x00S\x30\x45"
    source, target = (terminus, NULL) if receiver else (NULL, terminus)
    fields = [text(name), number(handle), flag(receiver), NULL, NULL, source, target, NULL, NULL, number(0)]
    return frame(b"\x00S\x12" + listed(*fields, *more), channel=channel)


def transfer_frames(payload: bytes, *, channel: int = 0) -> bytes:
    parts = [payload[start : start + SMALL_ENOUGH] for start in range(0, len(payload), SMALL_ENOUGH)] or [b""]
    found = b""
    for position, part in enumerate(parts):
        more = b"\x41" if position + 1 < len(parts) else b"\x42"
        head = listed(number(0), number(0), b"\xa0\x01t", number(0), FALSE, more)
        found += frame(b"\x00\x53\x14" + head + part, channel=channel)
    return found


def begun() -> Words:
    return [SASL, HEADER + open_frame()]


def attached(path: str, *, receiver: bool = False, more: Sequence[bytes] = ()) -> Words:
    return [*begun(), begin_frame() + attach(path, receiver=receiver, more=more)]


# Nesting and numbers


def nested(depth: int, *, kind: str) -> bytes:
    """Return a value of values of values."""
    match kind:
        case "described":
            return b"\x00" * depth + b"\x40" * (depth + 1)
        case "list8":
            value = b"\x45"
            for _ in range(min(depth, 80)):
                value = b"\xc0" + bytes((len(value) + 1, 1)) + value
            return value
        case "array":
            return (b"\xf0\x00\x00\x00\x00\x00\x00\x00\x01") * depth
        case _:
            head = b"\xd0" if kind == "list" else b"\xd1"
            value = b"\x40"
            parts = []
            size = 1
            for _ in range(depth):
                inner = size + 4 if kind == "list" else size + 5
                parts.append(head + inner.to_bytes(4, "big") + (1 if kind == "list" else 2).to_bytes(4, "big"))
                if kind != "list":
                    parts[-1] += b"\x40"
                size = inner + 5
            return b"".join(reversed(parts)) + value


KINDS = ("described", "list8", "array", "list", "map")


def deep_message(random: Random) -> Words:
    depth = random.choice((10, 100, 1_000, 5_000, 20_000))
    value = nested(depth, kind=random.choice(KINDS))
    section = random.choice((b"\x00Sp", b"\x00Sq", b"\x00Sr", b"\x00Ss", b"\x00St", b"\x00Sv", b"\x00Sw", b"\x00Sx"))
    path = random.choice(("flights", "flights/$management", "$cbs", "topic", "ordered"))
    return [*attached(path), transfer_frames(section + value + b"\x00Su\xa0\x01x")]


def deep_performative(random: Random) -> Words:
    depth = random.choice((10, 100, 1_000, 5_000))
    value = nested(depth, kind=random.choice(KINDS))[:SMALL_ENOUGH]
    where = random.randrange(4)
    if where == 0:
        return [SASL, HEADER + open_frame(value)]
    if where == 1:
        return [*begun(), frame(b"\x00\x53\x11" + listed(b"\x40", *[number(9)] * 4, value, value, value))]
    path = random.choice(("flights", "ordered", "topic/Subscriptions/all", "$cbs"))
    more = [b"\x40", b"\x40", value] if where == 2 else [value, value, value]
    return attached(path, receiver=random.random() < 0.7, more=more)


@cache
def _properties(count: int) -> bytes:
    return b"".join(b"\xa1\x06" + str(each).zfill(6)[:6].encode() + b"\x41" for each in range(count))


def many_properties_of(count: int, *, claimed: int | None = None) -> bytes:
    body = _properties(count)
    held = 2 * count if claimed is None else claimed
    properties = b"\x00St\xd1" + (4 + len(body)).to_bytes(4, "big") + held.to_bytes(4, "big") + body
    return properties + b"\x00Su\xa0\x01x"


def many_properties(random: Random) -> Words:
    count = random.choice((1_000, 100_000, 1_000_000))
    claimed = random.choice((2 * count, 2 * count, 1, 0xFFFFFFFF))
    path = random.choice(("large", "large", "topic", "flights", "flights/$management"))
    return [*attached(path), transfer_frames(many_properties_of(count, claimed=claimed))]


def hostile_length(random: Random) -> Words:
    length = random.choice(EDGES).to_bytes(4, "big")
    match random.randrange(5):
        case 0:
            return [*begun(), length + random.randbytes(200)]
        case 1:
            doff = random.choice((0, 1, 3, 0x40, 0xFF))
            return [*begun(), b"\x00\x00\x00\x20" + bytes((doff, random.randrange(4))) + bytes(26)]
        case 2:
            performative = bytes((0, 0x53, random.randrange(0x10, 0x19)))
            return [*begun(), frame(performative + b"\xd0" + length + length)]
        case 3:
            code = random.choice((0xB0, 0xB1, 0xB3, 0xD0, 0xD1, 0xF0))
            value = bytes((code,)) + length + random.randbytes(20)
            return [*attached("flights"), transfer_frames(b"\x00S" + bytes((random.randrange(0x70, 0x79),)) + value)]
        case _:
            return [SASL_HEADER, length + b"\x02\x01\x00\x00\x00SA" + bytes(random.randrange(200))]


def wrong_places(random: Random) -> Words:
    """Frames on channels and handles that are closed, were never opened, or are too many."""
    end, detach = frame(b"\x00\x53\x17" + listed()), frame(b"\x00\x53\x16" + listed(number(0), b"\x41"))
    match random.randrange(7):
        case 0:
            return [*begun(), transfer_frames(b"x", channel=random.choice((0, 1, 4999, 5000, 65535)))]
        case 1:
            return [*attached("flights"), end + transfer_frames(b"x") + end + end]
        case 2:
            channels = range(random.choice((10, 5001)))
            return [*begun(), b"".join(begin_frame(channel=channel) for channel in channels)]
        case 3:
            handles = range(random.choice((10, 300, 3000)))
            return [
                *begun(),
                begin_frame(),
                b"".join(attach("flights", name=str(each), handle=each) for each in handles),
            ]
        case 4:
            return [*attached("flights"), detach + transfer_frames(b"x") + detach]
        case 5:
            first, last = random.choice(EDGES), random.choice(EDGES)
            settled = listed(b"\x41", number(first), number(last), b"\x41", b"\x00\x53\x24\x45")
            return [*attached("flights", receiver=True), frame(b"\x00\x53\x15" + settled)]
        case _:
            fields = [number(random.choice(EDGES)) for _ in range(7)]
            flow = frame(b"\x00\x53\x13" + listed(*fields, b"\x40", b"\x41"))
            return [*attached("flights", receiver=True), flow * random.choice((1, 1000))]


def random_bytes(random: Random) -> Words:
    before = random.choice(([], [HEADER], [SASL_HEADER], [SASL], begun(), [b"\x16\x03\x01"], attached("flights")))
    return [*before, random.randbytes(random.choice((1, 10, 1_000, 50_000)))]


# Mutations of recorded frames


def frames_of(sent: bytes) -> Words:
    """Take a recorded session apart: protocol headers and frames."""
    parts, start = [], 0
    while start < len(sent):
        size = 8 if sent.startswith(b"AMQP", start) else max(8, int.from_bytes(sent[start : start + 4], "big"))
        parts.append(sent[start : start + size])
        start += size
    return parts


def mutated(random: Random, recorded: Sequence[Words]) -> Words:
    """Change a recorded session, mostly late: what is broken early is refused early."""
    frames = list(random.choice(recorded))
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        place = random.randrange(len(frames)) if random.random() < 0.2 else random.randrange(3, len(frames))
        frames[place] = _changed(random, frames[place], other=random.choice(random.choice(recorded)))
    if random.random() < 0.1:
        late = frames[4:]
        random.shuffle(late)
        frames[4:] = late
    return frames


def _changed(random: Random, sent: bytes, *, other: bytes) -> bytes:
    changed = bytearray(sent)
    if len(changed) == 0:
        return other
    where = random.randrange(len(changed))
    match random.randrange(9):
        case 0 | 1 | 2:
            for _ in range(random.choice((1, 2, 8))):
                changed[random.randrange(len(changed))] = random.choice((0, 0x40, 0x45, 0xFF, random.randrange(256)))
        case 3:
            del changed[where:]
        case 4:
            changed[where:where] = random.randbytes(random.choice((1, 4, 100)))
            changed[:4] = len(changed).to_bytes(4, "big")
        case 5:
            changed[where : where + 4] = random.choice(EDGES).to_bytes(4, "big")
        case 6:
            changed += other
        case 7:
            changed[6:8] = random.choice((0, 1, 5, 0xFFFF)).to_bytes(2, "big")
        case _:
            changed *= random.choice((0, 2, 500))
    return bytes(changed)


def websocket(random: Random, recorded: Sequence[Words]) -> Words:
    key = base64.b64encode(random.randbytes(16))
    sent = (
        b"GET /$servicebus/websocket HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Key: " + key + b"\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: AMQPWSB10\r\n\r\n"
    )
    if random.random() < 0.2:
        sent = _changed(random, sent, other=b"GET")
    payloads = mutated(random, recorded) if random.random() < 0.7 else [random.randbytes(random.randrange(2000))]
    return [sent, *(_websocket_frame(random, payload) for payload in payloads)]


def _websocket_frame(random: Random, payload: bytes) -> bytes:
    mask = random.randbytes(4)
    masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(payload))
    right = random.random() < 0.9
    opcode = 0x82 if right else random.randrange(256)
    size = len(masked) if right else random.choice((*EDGES, 1 << 63, (1 << 64) - 1))
    return bytes((opcode, 0x80 | 127)) + size.to_bytes(8, "big") + mask + masked


def amqp_cases(recorded: Sequence[Words]) -> dict[str, Case]:
    """Return generators of input for the AMQP port, by name."""
    return {
        "random bytes": random_bytes,
        "a changed session": lambda random: mutated(random, recorded),
        "another changed session": lambda random: mutated(random, recorded),
        "hostile lengths": hostile_length,
        "deep messages": deep_message,
        "deep performatives": deep_performative,
        "many properties": many_properties,
        "wrong places": wrong_places,
        "websocket": lambda random: websocket(random, recorded),
    }


# HTTP


ENTRY = (
    b'<entry xmlns="http://www.w3.org/2005/Atom"><content type="application/xml"><QueueDescription xmlns='
    b'"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect"><LockDuration>PT1M</LockDuration>'
    b"<MaxSizeInMegabytes>1</MaxSizeInMegabytes></QueueDescription></content></entry>"
)


def document(random: Random) -> bytes:
    match random.randrange(6):
        case 0:
            depth = random.choice((10, 1_000, 50_000))
            return b"<a>" * depth + b"</a>" * depth
        case 1:
            entities = b"".join(
                b'<!ENTITY e%d "%s">' % (each, (b"&e%d;" % (each - 1)) * 10 if each else b"x" * 100)
                for each in range(9)
            )
            return b'<?xml version="1.0"?><!DOCTYPE a [' + entities + b"]><a>&e8;</a>"
        case 2:
            return random.randbytes(random.choice((0, 10, 5_000)))
        case 3:
            return ENTRY.replace(b"PT1M", random.choice((b"P" + b"9" * 5000 + b"D", b"", b"\x00", b"PT1M" * 1000)))
        case 4:
            return ENTRY.replace(b"<Lock", b"<Lock " + b" ".join(b'a%d=""' % each for each in range(5000)))
        case _:
            changed = bytearray(ENTRY)
            for _ in range(5):
                changed[random.randrange(len(changed))] = random.randrange(256)
            return bytes(changed)


JSON_BODIES = (
    b"",
    b"{}",
    b"[" * 100_000,
    b"\xff",
    b'{"entity": "flights", "body": "x"}',
    b'{"entity": "flights", "body": "\\ud800", "properties": {"\\ud800": 1e999, "a": true}}',
    b'{"entity": "flights", "content_type": "\\u00e9", "properties": {"n": 99999999999999999999999}}',
    b'{"entity": "topic/Subscriptions/all", "sequence_number": 1}',
    b'{"entity": "flights", "sequence_number": 1e3}',
    b'{"entity": "flights", "sequence_number": 2}',
)


def request(random: Random) -> bytes:
    method = random.choice((b"GET", b"PUT", b"POST", b"DELETE", b"PATCH", b"HEAD", b"OPTIONS", b"BREW", b"CONNECT"))
    path = random.choice(
        (
            b"/unknown",
            b"/$Resources/queues",
            b"/$namespaceinfo",
            b"/",
            b"/$page/overview",
            b"/$page/messages?entity=flights",
            b"/$page/messages",
            b"/$page/dead-letters",
            b"/topic/subscriptions/all/rules/x",
            b"/%00%ff%2f..%2f",
            b"/" + b"a" * random.choice((10, 300, 8_000)),
            b"/" + random.randbytes(20).hex().encode(),
            b"//" * 50,
            b"*",
        )
    )
    query = random.choice(
        (b"?api-version=2021-05", b"?api-version=2021-05&$skip=-1&$top=99999999999", b"", b"?" + b"&" * 500)
    )
    body = document(random) if method in {b"PUT", b"POST", b"PATCH"} else b""
    fields = [random.choice((b"Host: x", b"Host: localhost"))]
    if path.startswith(b"/$page"):
        body = random.choice(JSON_BODIES)
        fields.append(b"Content-Type: application/json")
    match random.randrange(6):
        case 0:
            fields += [b"x%d: y" % each for each in range(random.choice((10, 5_000)))]
        case 1:
            fields.append(b"x: " + b"y" * random.choice((100, 100_000)))
        case 2:
            fields.append(b"If-Match: *")
        case 3:
            fields.append(b"Expect: 100-continue")
        case _:
            pass
    if random.random() < 0.8:
        fields.append(b"Content-Length: %d" % len(body))
    else:
        wrong = random.choice(
            (b"Content-Length: 99999999999999999999", b"Content-Length: -1", b"Transfer-Encoding: chunked")
        )
        fields.append(wrong)
    return method + b" " + path + query + b" HTTP/1.1\r\n" + b"\r\n".join(fields) + b"\r\n\r\n" + body


def changed_request(random: Random) -> bytes:
    sent = bytearray(request(random))
    for _ in range(random.choice((1, 3, 20))):
        sent[random.randrange(min(len(sent), 400))] = random.randrange(256)
    return bytes(sent)


def http_cases() -> dict[str, Case]:
    """Return generators of input for the administration port, by name."""
    return {
        "requests": lambda random: [request(random)],
        "changed requests": lambda random: [changed_request(random)],
        "many requests": lambda random: [request(random) for _ in range(random.randrange(20))],
        "bytes": lambda random: [random.randbytes(random.choice((1, 100, 10_000)))],
        "a hello of TLS": lambda random: [b"\x16\x03\x01", random.randbytes(random.choice((1, 5, 500)))],
    }
