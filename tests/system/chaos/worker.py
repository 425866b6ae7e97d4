"""The processes that are killed: ``sender`` sends until it is told to end, ``syphon`` moves what was diverted."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections.abc import Sequence
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from servicebus_pair.core.errors import SendError
from servicebus_pair.core.events import Observer
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.core.sender import PairSender
from tests.system.chaos.load import ENTITIES, Journal, message

__all__ = ["LEDGERS", "QUEUES", "open_pair"]

QUEUES = 3
LEDGERS = "ledger"
_LARGEST_SEND = 40


def open_pair(settings: dict[str, Any], *, observers: Sequence[Observer] = ()) -> NamespacePair:
    """A pair that notices soon."""
    primary = Endpoint.from_connection_string(**settings["primary"])
    secondary = Endpoint.from_connection_string(**settings["secondary"])
    options = PairOptions(
        backlog_queue_count=QUEUES,
        failover_interval=timedelta(seconds=1),
        ping_primary_interval=timedelta(seconds=1),
        ping_timeout=timedelta(seconds=2),
        server_busy_delay=timedelta(seconds=0.5),
        syphon_long_poll=timedelta(seconds=20),
    )
    return NamespacePair(primary, secondary, options, observers=observers)


async def send(pair: NamespacePair, name: str, folder: Path, rate: float, ended: asyncio.Event) -> None:
    """Send to every entity, about ``rate`` messages a second, and write down what was accepted."""
    journal = Journal(folder, name)
    async with pair:
        senders = (
            _send_to(pair.sender(entity), f"{name}.{entity}", journal, rate=rate, ended=ended) for entity in ENTITIES
        )
        await asyncio.gather(*senders)


async def _send_to(sender: PairSender, name: str, journal: Journal, *, rate: float, ended: asyncio.Event) -> None:
    random = Random(name)  # noqa: S311 - sizes
    numbers = count()
    unsent: Sequence[Any] = ()
    async with sender:
        while not ended.is_set():
            fresh = [message(f"{name}.{next(numbers)}") for _ in range(random.randint(1, _LARGEST_SEND))]
            unsent = await _send_once(sender, [*unsent, *fresh], journal)
            await _wait(ended, len(fresh) * len(ENTITIES) / rate)


async def _send_once(sender: PairSender, messages: Sequence[Any], journal: Journal) -> Sequence[Any]:
    try:
        result = await sender.send(messages)
    except SendError as error:
        journal.accepted(sender.entity, error.result.message_ids)
        return error.unsent
    journal.accepted(sender.entity, result.message_ids)
    return ()


async def _wait(ended: asyncio.Event, seconds: float) -> None:
    try:
        await asyncio.wait_for(ended.wait(), seconds)
    except TimeoutError:
        return


async def move(pair: NamespacePair, ended: asyncio.Event) -> None:
    """Run a continuous syphon."""
    async with pair:
        syphon = pair.syphon()
        running = asyncio.create_task(syphon.run())
        await ended.wait()
        syphon.stop()
        await running


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["sender", "syphon"])
    parser.add_argument("name")
    parser.add_argument("settings")
    parser.add_argument("folder", type=Path)
    parser.add_argument("rate", type=float)
    given = parser.parse_args()
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    ledger = Ledger(given.folder / LEDGERS, run=given.name)
    pair = open_pair(json.loads(given.settings), observers=[ledger])
    if given.role == "sender":
        await send(pair, given.name, given.folder, given.rate, ended)
    else:
        await move(pair, ended)


if __name__ == "__main__":
    asyncio.run(main())
