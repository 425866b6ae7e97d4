"""Random bytes on all ports of an emulator that other clients use: ``python -m tests.emulator.support.fuzz``."""

from __future__ import annotations

import argparse
import asyncio
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import IO

import psutil
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_emulator.namespace_server import connection_string
from tests.emulator.support.hostile_bytes import Case, Words, amqp_cases, frames_of, http_cases, many_properties
from tests.emulator.support.hostile_conversations import conversation

MEGABYTE = 1024 * 1024
CONFIG = """
{"UserConfig": {"Namespaces": [{"Name": "contoso",
  "Queues": [{"Name": "calm", "Properties": {"MaxSizeInMegabytes": 1}},
             {"Name": "flights", "Properties": {"MaxSizeInMegabytes": 1}},
             {"Name": "large", "Properties": {"DefaultMessageTimeToLive": "PT1S"}},
             {"Name": "ordered", "Properties": {"MaxSizeInMegabytes": 1, "RequiresSession": true}}],
  "Topics": [{"Name": "topic", "Properties": {"MaxSizeInMegabytes": 1},
              "Subscriptions": [{"Name": "all", "Rules": []}]}]}]}}
"""
READY = re.compile(r"ready namespace=\S+ amqp=(\S+):(\d+) admin=\S+:(\d+)")
CONNECT_SECONDS = 5.0
# Many times what start and stop take, for a machine that other processes keep busy.
PROCESS_SECONDS = 60.0
PAUSE_SECONDS = 0.02


@dataclass(slots=True)
class Figures:
    """The results of a run.

    :ivar sent: the number of connections by kind of input.
    :ivar received: the number of bytes received in reply.
    :ivar slowest: the longest round trip of another client's message, in seconds.
    :ivar memory_before, memory_max: the size of the process at the start and at most, in bytes.
    :ivar stopped: how long the process took to end after SIGTERM, in seconds.
    :ivar raised: exceptions in the log, by their last line.
    """

    sent: Counter[str] = field(default_factory=Counter)
    received: Counter[str] = field(default_factory=Counter)
    round_trips: int = 0
    slowest: float = 0.0
    memory_before: int = 0
    memory_max: int = 0
    stopped: float = 0.0
    raised: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        growth = (self.memory_max - self.memory_before) / MEGABYTE
        lines = [
            f"{sum(self.sent.values())} connections: {dict(self.sent)}",
            f"bytes answered: {dict(self.received)}",
            f"{self.round_trips} round trips of another client, the slowest {self.slowest:.2f} s",
            f"memory {self.memory_before / MEGABYTE:.0f} MB, at most {growth:.0f} MB more",
            f"stopped in {self.stopped:.2f} s",
            f"exceptions: {dict(self.raised)}",
        ]
        return "\n".join(lines)


class Target:
    """A served namespace under attack."""

    def __init__(self, process: asyncio.subprocess.Process, *, host: str, amqp: int, admin: int, log: Path) -> None:
        self.process = process
        self.host = host
        self.amqp = amqp
        self.admin = admin
        self.log = log

    @property
    def memory(self) -> int:
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def check(self, when: str) -> None:
        """Check that it is still there.

        :raises AssertionError: when it ended.
        """
        status = self.process.returncode
        if status is not None:
            raise AssertionError(f"it ended with status {status} in {when}; its log: {self.log.read_text()[-5000:]}")

    def raised(self) -> Counter[str]:
        """Return the exceptions in its log, by their last line."""
        found: Counter[str] = Counter()
        inside = False
        for line in self.log.read_text(errors="replace").splitlines():
            if line.startswith("Traceback"):
                inside = True
            elif inside and len(line) > 0 and not line[0].isspace():
                found[line[:160]] += 1
                inside = False
        return found


@asynccontextmanager
async def target() -> AsyncIterator[Target]:
    """Serve a namespace in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        config, log = Path(folder) / "config.json", Path(folder) / "log"
        config.write_text(CONFIG)
        with log.open("wb") as output:
            process = await _start(config, output)
        assert process.stdout is not None
        try:
            line = (await asyncio.wait_for(process.stdout.readline(), PROCESS_SECONDS)).decode()
            ready = READY.match(line)
            assert ready is not None, log.read_text()
            yield Target(process, host=ready[1], amqp=int(ready[2]), admin=int(ready[3]), log=log)
        finally:
            if process.returncode is None:
                process.terminate()
            await asyncio.wait_for(process.wait(), PROCESS_SECONDS)


async def _start(config: Path, output: IO[bytes]) -> asyncio.subprocess.Process:
    ports = ["--amqp-port", "0", "--admin-port", "0", "--opening-seconds", "5", "--greeting-seconds", "2", "--open"]
    options = ["--config", str(config), "--message-kilobytes", "102400", "--log-level", "WARNING", *ports]
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "servicebus_emulator", *options, stdout=asyncio.subprocess.PIPE, stderr=output
    )


async def record(attacked: Target) -> list[list[bytes]]:
    """Return the frames of the SDK when it sends, receives, settles and manages."""
    sessions: list[list[bytes]] = []

    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection(attacked.host, attacked.amqp)
        sent = bytearray()

        async def forward(source: asyncio.StreamReader, sink: asyncio.StreamWriter, copy: bytearray) -> None:
            with suppress(OSError):
                while len(data := await source.read(65536)) > 0:
                    copy += data
                    sink.write(data)
            sink.close()

        await asyncio.gather(forward(reader, there_writer, sent), forward(there_reader, writer, bytearray()))
        sessions.append(frames_of(bytes(sent)))

    server = await asyncio.start_server(relay, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with ServiceBusClient.from_connection_string(connection_string("127.0.0.1", port=port)) as client:
        await _use(client)
    server.close()
    return sessions


async def _use(client: ServiceBusClient) -> None:
    async with client.get_queue_sender("flights") as sender:
        await sender.send_messages(
            [ServiceBusMessage(str(each), application_properties={"n": each}) for each in range(5)]
        )
        [scheduled] = await sender.schedule_messages([ServiceBusMessage("x")], datetime.now(UTC) + timedelta(hours=1))
        await sender.cancel_scheduled_messages(scheduled)
    async with client.get_queue_receiver("flights") as receiver:
        [one, two, three, four, five] = await receiver.receive_messages(5, max_wait_time=3)
        await receiver.complete_message(one)
        await receiver.abandon_message(two)
        await receiver.dead_letter_message(three, reason="x")
        await receiver.defer_message(four)
        await receiver.receive_deferred_messages([four.sequence_number or 0])
        await receiver.renew_message_lock(five)
        await receiver.peek_messages(3)
    async with client.get_queue_sender("ordered") as sender:
        await sender.send_messages(ServiceBusMessage("x", session_id="s"))
    async with client.get_queue_receiver("ordered", session_id="s") as receiver:
        await receiver.session.set_state(b"x")
        await receiver.session.get_state()
        await receiver.session.renew_lock()
        for message in await receiver.receive_messages(1, max_wait_time=3):
            await receiver.complete_message(message)


async def send_pieces(attacked: Target, *, port: int, pieces: Words, timeout: float) -> int:
    """Send the pieces on one connection, reading between them; return the number of bytes received."""
    reader, writer = await asyncio.wait_for(asyncio.open_connection(attacked.host, port), CONNECT_SECONDS)
    received = 0
    with suppress(OSError):
        for position, each in enumerate(pieces):
            for start in range(0, len(each), 1 << 18):
                writer.write(each[start : start + (1 << 18)])
                async with asyncio.timeout(30):
                    await writer.drain()
            received += await _listen(reader, seconds=timeout if position + 1 == len(pieces) else PAUSE_SECONDS)
    writer.transport.abort()
    return received


async def _listen(reader: asyncio.StreamReader, *, seconds: float) -> int:
    received = 0
    with suppress(TimeoutError):
        while (size := len(await asyncio.wait_for(reader.read(1 << 18), seconds))) > 0:
            received += size
    return received


async def watch(attacked: Target, figures: Figures, *, enough: asyncio.Event) -> None:
    """Act as a well-behaved client meanwhile.

    :raises AssertionError: when it is not served as it should be.
    """
    connection = connection_string(attacked.host, port=attacked.amqp)
    async with (
        ServiceBusClient.from_connection_string(connection, retry_total=0) as client,
        client.get_queue_sender("calm") as sender,
        client.get_queue_receiver("calm") as receiver,
    ):
        while not enough.is_set():
            began = time.monotonic()
            text = str(figures.round_trips)
            await sender.send_messages(ServiceBusMessage(text), timeout=20)
            [message] = await receiver.receive_messages(1, max_wait_time=20)
            assert str(message) == text
            await receiver.complete_message(message)
            figures.round_trips += 1
            figures.slowest = max(figures.slowest, time.monotonic() - began)
            figures.memory_max = max(figures.memory_max, attacked.memory)
            with suppress(TimeoutError):
                await asyncio.wait_for(enough.wait(), 0.2)


async def attack(attacked: Target, figures: Figures, *, seed: int, rounds: int | None, seconds: float) -> None:
    """Send random bytes in rounds, each with one input of every kind."""
    recorded = await record(attacked)
    many_properties(Random(seed))  # noqa: S311 - cached before times are measured
    kinds: list[tuple[str, Case, int]] = [
        *((name, case, attacked.amqp) for name, case in amqp_cases(recorded).items()),
        *[("conversations", conversation, attacked.amqp)] * 4,
        *((name, case, attacked.admin) for name, case in http_cases().items()),
        *((f"{name}, on the other port", case, attacked.amqp) for name, case in http_cases().items()),
    ]
    ends, done = time.monotonic() + seconds, 0
    figures.memory_before = attacked.memory
    while time.monotonic() < ends and (rounds is None or done < rounds):
        random = Random(f"{seed} {done}")  # noqa: S311 - reproducible
        inputs = [(port, case(random)) for _, case, port in kinds]
        sending = (send_pieces(attacked, port=port, pieces=each, timeout=0.2) for port, each in inputs)
        received = await asyncio.gather(*sending)
        for (name, _, _), size in zip(kinds, received, strict=True):
            figures.sent[name] += 1
            figures.received[name] += size
        done += 1
        attacked.check(f"round {done} of seed {seed}")


async def run(*, seed: int, rounds: int | None = None, seconds: float = 3600.0) -> Figures:
    """Attack a namespace.

    :param rounds: how many rounds; None = as many as there is time for.
    :param seconds: how long at most.
    :raises AssertionError: when the process ends, or its other client is not served.
    """
    figures, enough = Figures(), asyncio.Event()
    async with target() as attacked:
        watching = asyncio.ensure_future(watch(attacked, figures, enough=enough))
        try:
            await attack(attacked, figures, seed=seed, rounds=rounds, seconds=seconds)
        finally:
            enough.set()
            figures.raised = attacked.raised()
        await asyncio.wait_for(watching, 60)
        if len(figures.raised) > 0:
            sys.stderr.write(attacked.log.read_text(errors="replace"))
        stopping = time.monotonic()
    figures.stopped = time.monotonic() - stopping
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="how long (default: %(default)g)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the generated bytes (default: %(default)s)")
    options = parser.parse_args()
    print(asyncio.run(run(seed=options.seed, seconds=options.seconds)))  # noqa: T201 - the result


if __name__ == "__main__":
    main()
