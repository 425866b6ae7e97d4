"""The cost of the failover-aware sender compared with the bare SDK, and of a divert compared with a healthy send.

Both namespaces run in a separate process. All contenders send equal messages, each creating its own. They alternate in
many short rounds, each in another order; a ratio is the median of the ratios of the rounds, so that other load on the
machine affects both sides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from datetime import timedelta
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any, TypeAlias

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator.testing.process import EmulatorProcess
from servicebus_emulator.testing.remote_namespace import RemoteNamespace
from servicebus_pair.core import Ledger, NamespacePair, PairOptions
from servicebus_pair.core.send.sender import PairSender
from tests.benchmarks.core.baseline import QUEUE, endpoint, send_batches
from tests.benchmarks.measure import Measure
from tests.benchmarks.timings import Timings, rotated

_BODY = b"x" * 200
_BATCHED_MESSAGES = 1_500
# So that each of four and of three contenders begins as many rounds.
_ROUNDS = 24
# Seconds of a round trip (same machine, zone and region, another region), and the single sends per round: fewer with a
# longer round trip, so that rounds take about as long.
_SINGLE_SENDS = {0.0: 50, 0.001: 40, 0.005: 20, 0.020: 10}


_Send: TypeAlias = Callable[[int], Awaitable[None]]
"""Sends a number of messages."""


def measures() -> Iterator[Measure]:
    """Measure sends at several round-trip times."""
    for round_trip in _SINGLE_SENDS:
        where = f"{round_trip * 1000:g} ms" if round_trip else "loopback"
        timings = asyncio.run(_at(round_trip))
        for name, each in timings.items():
            yield Measure(name=f"{where}: {name}", value=each.rate, unit="msg/s")
        for name, ours, theirs, goal in (
            (
                "healthy batched send, pair / bare SDK",
                "batched, pair",
                "batched, bare SDK",
                0.95 if round_trip else 1.3,
            ),
            ("healthy single sends, pair / bare SDK", "single, pair", "single, bare SDK", 0.90),
            ("diverted batched send / healthy batched send", "batched, diverted", "batched, pair", 0.85),
            ("batched send with a ledger / without", "batched, pair with a ledger", "batched, pair", 0.95),
        ):
            ratio = timings[ours].relative_to(timings[theirs])
            yield Measure(name=f"{where}: {name}", value=ratio, unit="ratio", at_least=goal)
        for name, each in timings.items():
            yield Measure(name=f"{where}: {name}, CPU time", value=median(each.cpu) * 1e6, unit="us per message")


async def _at(round_trip: float) -> dict[str, Timings]:
    with (
        EmulatorProcess(["contoso", "contoso-dr"]) as process,
        TemporaryDirectory() as folder,
        Ledger(folder, run="bench") as ledger,
    ):
        primary, secondary = process["contoso"], process["contoso-dr"]
        primary.create_queue(QUEUE)
        if round_trip:
            for namespace in (primary, secondary):
                namespace.set_fault(Fault(kind=FaultKind.LATENCY, delay=round_trip))
        return await _time_all(primary, secondary, ledger, single_sends=_SINGLE_SENDS[round_trip])


async def _time_all(
    primary: RemoteNamespace, secondary: RemoteNamespace, ledger: Ledger, *, single_sends: int
) -> dict[str, Timings]:
    endpoints = endpoint(primary), endpoint(secondary)
    options = PairOptions(backlog_queue_count=1)
    async with (
        ServiceBusClient.from_connection_string(primary.connection_string) as client,
        client.get_queue_sender(QUEUE) as bare,
        NamespacePair(*endpoints, options) as pair,
        NamespacePair(*endpoints, options) as failed_over,
        NamespacePair(*endpoints, options, observers=[ledger]) as recorded,
        pair.sender(QUEUE) as sender,
        failed_over.sender(QUEUE) as diverting,
        recorded.sender(QUEUE) as with_ledger,
    ):
        await pair.provision()
        await failed_over.fail_over(QUEUE, reason="benchmark", hold=timedelta(hours=1))
        batched: dict[str, _Send] = {
            "batched, bare SDK": lambda count: send_batches(bare, _messages(count)),
            "batched, pair": lambda count: _send(sender, count),
            "batched, pair with a ledger": lambda count: _send(with_ledger, count),
            "batched, diverted": lambda count: _divert(diverting, count),
        }
        single: dict[str, _Send] = {
            "single, bare SDK": lambda count: _send_singles(bare.send_messages, count),
            "single, pair": lambda count: _send_singles(sender.send, count),
            "single, pair, without the SDK call": lambda count: _send_singles_without_sdk(sender, count),
        }
        return await _rounds(batched, count=_BATCHED_MESSAGES) | await _rounds(single, count=single_sends)


async def _rounds(contenders: Mapping[str, _Send], *, count: int) -> dict[str, Timings]:
    timings = {name: Timings() for name in contenders}
    for send in contenders.values():
        await send(10)  # warm-up
    for number in range(_ROUNDS):
        for name, send in rotated(list(contenders.items()), number):
            started, cpu = perf_counter(), process_time()
            await send(count)
            timings[name].elapsed.append((perf_counter() - started) / count)
            timings[name].cpu.append((process_time() - cpu) / count)
    return timings


def _messages(count: int) -> Iterator[ServiceBusMessage]:
    return (ServiceBusMessage(_BODY, message_id=f"m{number}") for number in range(count))


async def _send(sender: PairSender, count: int) -> None:
    await sender.send(_messages(count))


async def _divert(sender: PairSender, count: int) -> None:
    result = await sender.send(_messages(count))
    assert result.diverted == count


async def _send_singles(send: Callable[[ServiceBusMessage], Awaitable[object]], count: int) -> None:
    for message in _messages(count):
        await send(message)


async def _send_singles_without_sdk(sender: PairSender, count: int) -> None:
    """Send single messages with the call of the SDK replaced by one that does nothing."""
    link: Any = sender._link
    # An unknown name would be ignored, and the SDK measured after all.
    assert hasattr(link, "_send")

    async def do_nothing(sdk_sender: Any, batch: Any, *, timeout: float) -> None: ...

    link._send = do_nothing
    try:
        await _send_singles(sender.send, count)
    finally:
        del link._send
