"""What the failover-aware sender costs beside the bare SDK, and what a divert costs beside a healthy send.

Both namespaces run in a process of their own. All contenders send the same messages, which each
makes anew. They take turns in many short rounds, each round in another order, and a ratio is the
median of the rounds' own ratios: what else the machine does in the meantime meets both alike.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from servicebus_emulator import Fault, FaultKind
from servicebus_emulator.process import EmulatorProcess
from servicebus_emulator.served import ServedNamespace
from servicebus_pair.core import Endpoint, Ledger, NamespacePair, PairOptions
from servicebus_pair.core.sender import PairSender
from tests.benchmarks.measure import Measure

__all__ = ["measures"]

_BODY = b"x" * 200
_QUEUE = "bench"
_UNIT = "msg/s"
# Seconds of a round trip, beside none: a machine, a zone, a region away.
_ROUND_TRIPS = (0.0, 0.001, 0.005, 0.020)
_BATCHED, _BATCHED_ROUNDS = 1_500, 31
# So that rounds of single sends take about as long whatever the round trip.
_SINGLES = {0.0: 50, 0.001: 40, 0.005: 20, 0.020: 10}
_SINGLE_ROUNDS = 31
_BEFORE_SDK = "single, ours, up to the SDK"


@dataclass(frozen=True, slots=True)
class _Contender:
    """One way to send a number of messages."""

    name: str
    send: Callable[[int], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _Taken:
    """What the rounds of one contender took, in order, and the processor time of this process; seconds per message."""

    seconds: list[float]
    processor: list[float]

    @property
    def rate(self) -> float:
        return 1 / median(self.seconds)

    def beside(self, other: _Taken) -> float:
        """The rate as a multiple of another's, round by round."""
        return median(theirs / ours for ours, theirs in zip(self.seconds, other.seconds, strict=True))


def measures() -> Iterator[Measure]:
    """Measure, and compare with the goals."""
    for round_trip in _ROUND_TRIPS:
        where = f"{round_trip * 1000:g} ms" if round_trip else "loopback"
        taken = asyncio.run(_behind(round_trip))
        for name, each in taken.items():
            yield Measure(name=f"{where}: {name}", value=each.rate, unit=_UNIT)
        for name, ours, theirs, goal in (
            ("healthy batched send, ours / bare SDK", "batched, ours", "batched, bare SDK", 0.95),
            ("healthy single sends, ours / bare SDK", "single, ours", "single, bare SDK", 0.90),
            ("diverted batched send / healthy batched send", "batched, diverted", "batched, ours", 0.85),
            ("batched send with a ledger / without", "batched, ours with a ledger", "batched, ours", 0.95),
        ):
            ratio = taken[ours].beside(taken[theirs])
            yield Measure(name=f"{where}: {name}", value=ratio, unit="ratio", at_least=goal)
        yield from _processor_times(where, taken)


def _processor_times(where: str, taken: Mapping[str, _Taken]) -> Iterator[Measure]:
    """What each way takes of the client's processor: where the distance is, whatever else the machine does."""
    for name, each in taken.items():
        value = median(each.processor) * 1e6
        yield Measure(name=f"{where}: {name}, processor time", value=value, unit="us per message")


async def _behind(round_trip: float) -> dict[str, _Taken]:
    with (
        EmulatorProcess(["contoso", "contoso-dr"]) as process,
        TemporaryDirectory() as folder,
        Ledger(folder, run="bench") as ledger,
    ):
        primary, secondary = process["contoso"], process["contoso-dr"]
        primary.create_queue(_QUEUE)
        if round_trip:
            for namespace in (primary, secondary):
                namespace.set_fault(Fault(kind=FaultKind.LATENCY, delay=round_trip))
        return await _taken(primary, secondary, ledger, singles=_SINGLES[round_trip])


async def _taken(
    primary: ServedNamespace, secondary: ServedNamespace, ledger: Ledger, *, singles: int
) -> dict[str, _Taken]:
    ends = _endpoint(primary), _endpoint(secondary)
    options = PairOptions(backlog_queue_count=1)
    async with (
        ServiceBusClient.from_connection_string(primary.connection_string) as client,
        client.get_queue_sender(_QUEUE) as bare,
        NamespacePair(*ends, options) as pair,
        NamespacePair(*ends, options) as failed_over,
        NamespacePair(*ends, options, observers=[ledger]) as recorded,
        pair.sender(_QUEUE) as ours,
        failed_over.sender(_QUEUE) as diverted,
        recorded.sender(_QUEUE) as with_ledger,
    ):
        await pair.provision()
        failed_over.fail_over(_QUEUE, reason="benchmark", hold=timedelta(hours=1))
        batched = (
            _Contender("batched, bare SDK", lambda count: _bare_batches(bare, count)),
            _Contender("batched, ours", lambda count: _ours(ours, count)),
            _Contender("batched, ours with a ledger", lambda count: _ours(with_ledger, count)),
            _Contender("batched, diverted", lambda count: _diverted(diverted, count)),
        )
        single = (
            _Contender("single, bare SDK", lambda count: _bare_singles(bare, count)),
            _Contender("single, ours", lambda count: _our_singles(ours, count)),
            _Contender(_BEFORE_SDK, lambda count: _our_singles_up_to_the_sdk(ours, count)),
        )
        return await _rounds(batched, count=_BATCHED, rounds=_BATCHED_ROUNDS) | await _rounds(
            single, count=singles, rounds=_SINGLE_ROUNDS
        )


async def _rounds(contenders: Sequence[_Contender], *, count: int, rounds: int) -> dict[str, _Taken]:
    taken = {each.name: _Taken([], []) for each in contenders}
    for each in contenders:
        await each.send(10)
    for number in range(rounds):
        first = number % len(contenders)
        for each in (*contenders[first:], *contenders[:first]):
            began, processor = perf_counter(), process_time()
            await each.send(count)
            taken[each.name].seconds.append((perf_counter() - began) / count)
            taken[each.name].processor.append((process_time() - processor) / count)
    return taken


def _messages(count: int) -> Iterator[ServiceBusMessage]:
    return (ServiceBusMessage(_BODY, message_id=f"m{number}") for number in range(count))


async def _bare_batches(sender: ServiceBusSender, count: int) -> None:
    batch = await sender.create_message_batch()
    for message in _messages(count):
        try:
            batch.add_message(message)
        except MessageSizeExceededError:
            await sender.send_messages(batch)
            batch = await sender.create_message_batch()
            batch.add_message(message)
    await sender.send_messages(batch)


async def _ours(sender: PairSender, count: int) -> None:
    await sender.send(_messages(count))


async def _diverted(sender: PairSender, count: int) -> None:
    result = await sender.send(_messages(count))
    assert result.diverted == count


async def _bare_singles(sender: ServiceBusSender, count: int) -> None:
    for message in _messages(count):
        await sender.send_messages(message)


async def _our_singles(sender: PairSender, count: int) -> None:
    for message in _messages(count):
        await sender.send(message)


async def _our_singles_up_to_the_sdk(sender: PairSender, count: int) -> None:
    """All that a single send does, but for what the SDK does with the message."""
    link: Any = sender._link

    async def taken(handler: Any, batch: Any, *, timeout: float) -> None:
        """Take the message as the SDK does, and leave it at that."""

    link._hand_over = taken
    try:
        await _our_singles(sender, count)
    finally:
        del link._hand_over


def _endpoint(served: ServedNamespace) -> Endpoint:
    return Endpoint.from_connection_string(
        served.connection_string, namespace=served.name, administration=f"{served.host}:{served.admin_port}"
    )
