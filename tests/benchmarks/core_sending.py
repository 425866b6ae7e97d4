"""What the failover-aware sender costs beside the bare SDK, and what a divert costs beside a healthy send.

Both namespaces run in a process of their own. Each round measures all contenders in turn, the ratio
is that of their best rounds: on a machine that others use, the best is the least disturbed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from time import perf_counter

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient, ServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from servicebus_emulator.process import EmulatorProcess, ServedNamespace
from servicebus_pair.core import Endpoint, Ledger, NamespacePair, PairOptions
from servicebus_pair.core.administration import ServiceBusAdministration
from servicebus_pair.core.backlog import BACKLOG_QUEUE
from servicebus_pair.core.sender import PairSender
from tests.benchmarks.measure import Measure

__all__ = ["measures"]

_BODY = b"x" * 200
_BATCHED = 6_000
_SINGLES = 400
_ROUNDS = 5
_QUEUE = "bench"
_UNIT = "msg/s"


@dataclass(frozen=True, slots=True)
class _Contender:
    """One way to send, and how many messages it sends a round."""

    name: str
    send: Callable[[int], Awaitable[None]]
    count: int


def measures() -> Iterator[Measure]:
    """Measure, and compare with the goals."""
    rates = asyncio.run(_rates())
    for name, rate in rates.items():
        yield Measure(name=name, value=rate, unit=_UNIT)
    for name, ours, theirs, goal in (
        ("healthy batched send, ours / bare SDK", "batched, ours", "batched, bare SDK", 0.95),
        ("healthy single sends, ours / bare SDK", "single, ours", "single, bare SDK", 0.90),
        ("diverted batched send / healthy batched send", "batched, diverted", "batched, ours", 0.85),
        ("batched send with a ledger / without", "batched, ours with a ledger", "batched, ours", 0.95),
    ):
        yield Measure(name=name, value=rates[ours] / rates[theirs], unit="ratio", at_least=goal)


async def _rates() -> dict[str, float]:
    with EmulatorProcess(["contoso", "contoso-dr"]) as process, TemporaryDirectory() as folder:
        primary, secondary = _endpoint(process["contoso"]), _endpoint(process["contoso-dr"])
        async with ServiceBusAdministration(primary) as administration:
            await administration.create_queue(_QUEUE, BACKLOG_QUEUE)
        options = PairOptions(backlog_queue_count=1)
        with Ledger(folder, run="bench") as ledger:
            async with (
                ServiceBusClient.from_connection_string(process["contoso"].connection_string) as client,
                client.get_queue_sender(_QUEUE) as bare,
                NamespacePair(primary, secondary, options) as pair,
                NamespacePair(primary, secondary, options) as failed_over,
                NamespacePair(primary, secondary, options, observers=[ledger]) as recorded,
                pair.sender(_QUEUE) as ours,
                failed_over.sender(_QUEUE) as diverted,
                recorded.sender(_QUEUE) as with_ledger,
            ):
                await pair.provision()
                contenders = (
                    _Contender("batched, bare SDK", lambda count: _bare_batches(bare, count), _BATCHED),
                    _Contender("batched, ours", lambda count: _ours(ours, count), _BATCHED),
                    _Contender("batched, ours with a ledger", lambda count: _ours(with_ledger, count), _BATCHED),
                    _Contender("batched, diverted", lambda count: _diverted(failed_over, diverted, count), _BATCHED),
                    _Contender("single, bare SDK", lambda count: _bare_singles(bare, count), _SINGLES),
                    _Contender("single, ours", lambda count: _our_singles(ours, count), _SINGLES),
                )
                return await _best(contenders)


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


async def _diverted(pair: NamespacePair, sender: PairSender, count: int) -> None:
    pair.fail_over(_QUEUE, reason="benchmark")
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
