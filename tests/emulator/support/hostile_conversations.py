"""Generates random but mostly valid AMQP conversations."""

from __future__ import annotations

from random import Random

from tests.emulator.support.hostile_bytes import (
    COORDINATOR,
    EDGES,
    FALSE,
    NULL,
    TRUE,
    Words,
    attach,
    begin_frame,
    begun,
    flag,
    frame,
    listed,
    number,
    text,
)

ODD_MAP = b"\xd1\x00\x00\x00\x06\x00\x00\x00\x02\x45\x45"
"""A map whose key is a list, which no dictionary of Python can hold."""

TRANSACTIONS = tuple(b"\xa0\x05txn:%d" % each for each in (1, 1, 1, 2, 3))


def in_transaction(outcome: bytes, *, transaction: bytes = TRANSACTIONS[0]) -> bytes:
    return b"\x00S\x34" + listed(transaction, outcome)


DEAD_LETTER = b"\x00S\x1d" + listed(text("com.microsoft:dead-letter", symbol=True), text("x"), ODD_MAP)
OUTCOMES = (
    NULL,
    b"\x00S\x23" + listed(number(1), b"\x80" + bytes(8)),
    b"\x00S\x24\x45",
    b"\x00S\x25\x45",
    b"\x00S\x25" + listed(DEAD_LETTER),
    b"\x00S\x26\x45",
    b"\x00S\x27\x45",
    b"\x00S\x27" + listed(TRUE, TRUE, ODD_MAP),
    b"\x00S\x34\x45",
    *[in_transaction(NULL)] * 2,
    *[
        in_transaction(each)
        for each in (b"\x00S\x24\x45", b"\x00S\x25" + listed(DEAD_LETTER), b"\x00S\x26\x45", b"\x45")
    ],
    in_transaction(b"\x00S\x27" + listed(TRUE, TRUE, ODD_MAP)),
    b"\x00S\x99\x45",
)
PATHS = (
    *["flights"] * 6,
    "ordered",
    "topic",
    "topic/Subscriptions/all",
    "$cbs",
    "flights/$management",
    "none",
    "",
    COORDINATOR,
)
BODIES = (
    b"",
    b"x",
    b"\x00Su\xa0\x01x",
    b"\x00Su\xa0\x01x",
    b"\x00Ss" + listed(text("i")) + b"\x00Su\xa0\x01x",
    bytes(30_000),
    *[b"\x00Sw\x00S\x31\x45"] * 2,
    *[b"\x00Sw\x00S\x32" + listed(TRANSACTIONS[0], each) for each in (TRUE, FALSE)],
    b"\x00Sw\x00S\x32" + listed(TRANSACTIONS[3]),
    b"\x00Sw\x00S\x31",
)
NEXT_SESSION = [
    b"\xd1" + (4 + len(item)).to_bytes(4, "big") + (2).to_bytes(4, "big") + item
    for item in (
        text("com.microsoft:session-filter", symbol=True) + NULL,
        text("com.microsoft:timeout", symbol=True) + number(50),
    )
]
CHANNELS = (0, 1, 2, 3, 4999)
HANDLES = (0, 1, 2, 3, 200)


def again_under(channel: int, *, remote: int) -> bytes:
    """Begin a session as if in reply to one of the other side."""
    answered = b"\x60" + remote.to_bytes(2, "big")
    return frame(b"\x00S\x11" + listed(answered, number(0), number(5000), number(5000)), channel=channel)


def flow(*, handle: int, credit: int, window: int = 5000, channel: int = 0, drain: bool = False) -> bytes:
    fields = [NULL, number(window), number(0), number(5000), number(handle), NULL, number(credit), NULL, flag(drain)]
    return frame(b"\x00S\x13" + listed(*fields), channel=channel)


def transfer(
    body: bytes,
    *,
    handle: int,
    delivery: int | None,
    channel: int = 0,
    more: bool = False,
    aborted: bool = False,
    state: bytes = NULL,
    settled: bool = False,
) -> bytes:
    named = NULL if delivery is None else number(delivery)
    fields = [number(handle), named, b"\xa0\x01x", NULL, flag(settled), flag(more), NULL, state, FALSE, flag(aborted)]
    return frame(b"\x00S\x14" + listed(*fields) + body, channel=channel)


def accepted_range(first: int, last: int, *, outcome: bytes = b"\x00S\x24\x45", channel: int = 0) -> bytes:
    return frame(b"\x00S\x15" + listed(TRUE, number(first), number(last), TRUE, outcome), channel=channel)


def detach(handle: int, *, closed: bool = True, channel: int = 0) -> bytes:
    return frame(b"\x00S\x16" + listed(number(handle), flag(closed)), channel=channel)


def end(channel: int = 0) -> bytes:
    return frame(b"\x00S\x17" + listed(), channel=channel)


class _Client:
    """Tracks its sessions and links, so that most of its frames are valid."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.careless = random.choice((0, 0, 0.01, 0.1))
        self.handles: dict[int, set[int]] = {0: {0, 1}}
        self.deliveries: dict[int, int] = {}
        self.names = 0

    def one(self) -> bytes:
        frames = (self.begin, self.attach, self.flow, self.transfer, self.settle, self.detach, self.end)
        return self.random.choices(frames, (4, 14, 14, 22, 18, 8, 3))[0]()

    def channel(self) -> int:
        if self.random.random() < self.careless:
            return self.random.choice((*CHANNELS, 5000, 65535))
        return self.random.choice(sorted(self.handles) or [0])

    def handle(self, channel: int) -> int:
        if self.random.random() < self.careless:
            return self.random.choice((5, 255, 256, 0x7FFFFFFF, 0x80000000))
        return self.random.choice(sorted(self.handles.get(channel, ())) or [0])

    def begin(self) -> bytes:
        channel = self.random.choice(CHANNELS)
        if self.random.random() < 0.2:
            return again_under(channel, remote=self.random.choice((0, 1, 2)))
        self.handles[channel] = set()
        self.deliveries.pop(channel, None)
        return begin_frame(channel=channel)

    def attach(self) -> bytes:
        channel, handle = self.channel(), self.random.choice(HANDLES)
        self.handles.setdefault(channel, set()).add(handle)
        self.names += 1
        name = self.random.choice(("a", "b", str(self.names)))
        properties, filters = (self.random.choice((NULL, NULL, NULL, ODD_MAP, *NEXT_SESSION)) for _ in range(2))
        receiver = self.random.random() < 0.55
        path = self.random.choice(PATHS)
        more = [NULL, NULL, NULL, properties]
        return attach(path, name=name, handle=handle, receiver=receiver, channel=channel, filters=filters, more=more)

    def flow(self) -> bytes:
        channel, credit = self.channel(), self.random.choice((0, 1, 10, 1000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF))
        window = self.random.choice((0, 1, 5000, 5000, 0xFFFFFFFF))
        drain = self.random.random() < 0.3
        return flow(handle=self.handle(channel), credit=credit, window=window, channel=channel, drain=drain)

    def transfer(self) -> bytes:
        channel = self.channel()
        delivery: int | None = self.deliveries.get(channel, 0)
        if self.random.random() < 0.8:
            self.deliveries[channel] = self.deliveries.get(channel, 0) + 1
        else:
            delivery = self.random.choice((*EDGES, None)) if self.random.random() < self.careless else None
        more, aborted = self.random.random() < 0.35, self.random.random() < 0.15
        body, handle = self.random.choice(BODIES), self.handle(channel)
        state = self.random.choice((NULL, NULL, *[in_transaction(NULL, transaction=each) for each in TRANSACTIONS]))
        settled = self.random.random() < 0.1
        return transfer(
            body,
            handle=handle,
            delivery=delivery,
            channel=channel,
            more=more,
            aborted=aborted,
            state=state,
            settled=settled,
        )

    def settle(self) -> bytes:
        first = self.random.choice((0, 0, 1, 2, 5, 0xFFFFFFFF))
        last = self.random.choice((first, first, (first + 5) & 0xFFFFFFFF, 0x7FFFFFFF))
        outcome, often = self.random.choice(OUTCOMES), self.random.choice((1, 1, 1, 2, 30))
        return accepted_range(first, last, outcome=outcome, channel=self.channel()) * often

    def detach(self) -> bytes:
        channel = self.channel()
        handle = self.handle(channel)
        self.handles.get(channel, set()).discard(handle)
        return detach(handle, closed=self.random.random() < 0.6, channel=channel)

    def end(self) -> bytes:
        channel = self.channel()
        self.handles.pop(channel, None)
        return end(channel)


def conversation(random: Random) -> Words:
    """Send and receive on one session, then send random frames."""
    client = _Client(random)
    sent = [
        *begun(),
        begin_frame(),
        attach("flights", name="out", handle=0, receiver=False) + attach("flights", name="in", handle=1, receiver=True),
        flow(handle=1, credit=random.choice((10, 100)), window=random.choice((1, 5000))),
    ]
    if random.random() < 0.5:
        sent[-1] += attach(COORDINATOR, name="transactions", handle=2)
        client.handles[0].add(2)
        sent.append(transfer(b"\x00Sw\x00S\x31\x45", handle=2, delivery=0))
        client.deliveries[0] = 1
    for delivery in range(client.deliveries.get(0, 0), random.randrange(4)):
        sent.append(transfer(b"\x00Su\xa0\x01x", handle=0, delivery=delivery))
        client.deliveries[0] = delivery + 1
    pending = b""
    for _ in range(random.choice((5, 20, 60))):
        pending += client.one()
        if random.random() < 0.4 and len(sent) < 20:
            sent.append(pending)
            pending = b""
    return [*sent, pending]
