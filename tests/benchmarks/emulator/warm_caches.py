"""Receiving and completing one by one in this process: what it costs without sleeping, and so with warm caches.

A client in the same thread sends the frames of the SDK, and only the turns of the event loop that serve them are
measured, with their system calls. Unlike the cost of a process that sleeps in between, it hardly depends on other load.
"""

from __future__ import annotations

import asyncio
import socket
from time import thread_time_ns
from typing import Final, cast

from servicebus_emulator import Emulator
from servicebus_emulator.amqp.codec.raw_encoding import NULL, encode_string, encode_uint
from servicebus_emulator.engine.model.descriptions import QueueDescription
from tests.benchmarks.emulator.idle_client import connect, described, frame

_MESSAGES: Final = 2_000
_ATTACH_SECONDS: Final = 0.2
_BUFFER: Final = 64 * 1024
_FLOW, _TRANSFER, _DISPOSITION, _ATTACH, _SOURCE, _TARGET = 0x13, 0x14, 0x15, 0x12, 0x28, 0x29
_TRUE, _FALSE, _ACCEPTED = b"\x41", b"\x42", b"\x00\x53\x24\x45"
_SENDER, _RECEIVER = encode_uint(1), encode_uint(2)
_UNSETTLED, _SECOND = b"\x50\x00", b"\x50\x01"
_WINDOW: Final = encode_uint(5_000)
_BODY: Final = b"\x00\x53\x75\xa0\xc8" + b"x" * 200


def warm_cost() -> float:
    """Return the CPU seconds per message: the lower quartile, because other load only adds to it."""
    with asyncio.Runner() as runner:
        emulator = Emulator(["contoso"], open=True)
        runner.run(emulator.start())
        try:
            hosted = emulator["contoso"]
            hosted.namespace.create_queue(QueueDescription("q"))
            writer = runner.run(connect(hosted.host, hosted.amqp_port, number=0))
            # From now on its socket is used without the event loop, which would spend time on it.
            cast("asyncio.ReadTransport", writer.transport).pause_reading()
            with writer.get_extra_info("socket").dup() as client:
                _attach(client)
                runner.run(asyncio.sleep(_ATTACH_SECONDS))
                client.recv(_BUFFER)
                costs = sorted(_receive(client, number, runner=runner) for number in range(_MESSAGES))
            writer.close()
        finally:
            runner.run(emulator.stop())
    return costs[len(costs) // 4] / 1e9


def _attach(client: socket.socket) -> None:
    address = encode_string("q")
    ends = {_SOURCE: described(_SOURCE, address), _TARGET: described(_TARGET, address)}
    client.send(
        frame(
            0, described(_ATTACH, encode_string("s"), _SENDER, _FALSE, NULL, NULL, *ends.values(), NULL, NULL, b"\x43")
        )
        + frame(0, described(_ATTACH, encode_string("r"), _RECEIVER, _TRUE, _UNSETTLED, _SECOND, *ends.values()))
    )


def _receive(client: socket.socket, number: int, *, runner: asyncio.Runner) -> int:
    """Send a message, then receive and complete it; return the nanoseconds of the last two."""
    count = encode_uint(number)
    tag = b"\xa0\x04" + number.to_bytes(4, "big")
    sent = frame(0, described(_TRANSFER, _SENDER, count, tag, b"\x43", _FALSE) + _BODY)
    flow = frame(0, described(_FLOW, count, _WINDOW, count, _WINDOW, _RECEIVER, count, encode_uint(1)))
    completed = frame(0, described(_DISPOSITION, _TRUE, count, NULL, _FALSE, _ACCEPTED))
    _turn(client, sent, runner=runner)
    return _turn(client, flow, runner=runner) + _turn(client, completed, runner=runner)


def _turn(client: socket.socket, data: bytes, *, runner: asyncio.Runner) -> int:
    loop = runner.get_loop()
    client.send(data)
    began = thread_time_ns()
    loop.stop()
    loop.run_forever()
    spent = thread_time_ns() - began
    if len(client.recv(_BUFFER)) == 0:
        raise RuntimeError("the emulator closed the connection")
    return spent
