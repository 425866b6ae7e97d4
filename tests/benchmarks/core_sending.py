"""What the failover-aware sender costs beside the bare SDK, and what a divert costs beside a healthy send.

Both namespaces run in a process of their own. Each round measures all contenders in turn, the ratio
is that of their best rounds: on a machine that others use, the best is the least disturbed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from tempfile import TemporaryDirectory
from time import perf_counter

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
_BATCHED = 6_000
_SINGLES = 200
_ROUNDS = 5
_QUEUE = "bench"
_UNIT = "msg/s"
# Seconds of a round trip, beside none: a machine, a zone, a region away.
_ROUND_TRIPS = (0.0, 0.001, 0.005, 0.020)


@dataclass(frozen=True, slots=True)
class _Contender:
    """One way to send, and how many messages it sends a round."""

    name: str
    send: Callable[[int], Awaitable[None]]
    count: int


def measures() -> Iterator[Measure]:
    """Measure, and compare with the goals."""
    for round_trip, rates in asyncio.run(_all_rates()).items():
        where = f"{round_trip * 1000:g} ms" if round_trip else "loopback"
        for name, rate in rates.items():
            yield Measure(name=f"{where}: {name}", value=rate, unit=_UNIT)
        for name, ours, theirs, goal in (
            ("healthy batched send, ours / bare SDK", "batched, ours", "batched, bare SDK", 0.95),
            ("healthy single sends, ours / bare SDK", "single, ours", "single, bare SDK", 0.90),
            ("diverted batched send / healthy batched send", "batched, diverted", "batched, ours", 0.85),
            ("batched send with a ledger / without", "batched, ours with a ledger", "batched, ours", 0.95),
        ):
            yield Measure(name=f"{where}: {name}", value=rates[ours] / rates[theirs], unit="ratio", at_least=goal)


async def _all_rates() -> dict[float, dict[str, float]]:
    with EmulatorProcess(["contoso", "contoso-dr"]) as process, TemporaryDirectory() as folder:
        primary, secondary = process["contoso"], process["contoso-dr"]
        primary.create_queue(_QUEUE)
        with Ledger(folder, run="bench") as ledger:
            answer: dict[float, dict[str, float]] = {}
            for round_trip in _ROUND_TRIPS:
                for namespace in (primary, secondary):
                    namespace.clear_faults()
                    if round_trip:
                        namespace.set_fault(Fault(kind=FaultKind.LATENCY, delay=round_trip))
                answer[round_trip] = await _rates(primary, secondary, ledger)
            return answer


async def _rates(primary: ServedNamespace, secondary: ServedNamespace, ledger: Ledger) -> dict[str, float]:
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
        return await _best(
            (
                _Contender("batched, bare SDK", lambda count: _bare_batches(bare, count), _BATCHED),
                _Contender("batched, ours", lambda count: _ours(ours, count), _BATCHED),
                _Contender("batched, ours with a ledger", lambda count: _ours(with_ledger, count), _BATCHED),
                _Contender("batched, diverted", lambda count: _diverted(diverted, count), _BATCHED),
                _Contender("single, bare SDK", lambda count: _bare_singles(bare, count), _SINGLES),
                _Contender("single, ours", lambda count: _our_singles(ours, count), _SINGLES),
            )
        )


async def _best(contenders: tuple[_Contender, ...]) -> dict[str, float]:
    rates: dict[str, list[float]] = {each.name: [] for each in contenders}
    for each in contenders:
        await each.send(10)
    for _ in range(_ROUNDS):
        for each in contenders:
            began = perf_counter()
            await each.send(each.count)
            rates[each.name].append(each.count / (perf_counter() - began))
    return {name: max(taken) for name, taken in rates.items()}


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


def _endpoint(served: ServedNamespace) -> Endpoint:
    return Endpoint.from_connection_string(
        served.connection_string, namespace=served.name, administration=f"{served.host}:{served.admin_port}"
    )
