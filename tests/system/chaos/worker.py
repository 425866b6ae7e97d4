"""The processes that are killed: ``sender`` sends until SIGTERM, ``syphon`` drains the backlog."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from servicebus_pair.core.ledger.writer import Ledger
from servicebus_pair.core.model.errors import SendError
from servicebus_pair.core.model.events import Observer
from servicebus_pair.core.send.sender import PairSender
from servicebus_pair.core.spool import claims
from tests.system.chaos.health_store import FileHealthStore
from tests.system.chaos.messages import ENTITIES, Journal, make_message

QUEUES = 3
LEDGERS = "ledger"
_MAX_MESSAGES_PER_SEND = 40


def open_pair(settings: dict[str, Any], *, observers: Sequence[Observer] = ()) -> NamespacePair:
    """Return a pair with short intervals; in session order, with a store that all processes share."""
    ordering = settings["ordering"]
    options = PairOptions(
        backlog_queue_count=QUEUES,
        failover_interval=timedelta(seconds=1),
        ping_primary_interval=timedelta(seconds=1),
        ping_timeout=timedelta(seconds=2),
        server_busy_delay=timedelta(seconds=0.5),
        syphon_long_poll=timedelta(seconds=20),
        health_refresh=timedelta(seconds=2),
        ordering=ordering,
        spool=settings["spool"],
    )
    # A claim of a killed process is waited for like its locks.
    setattr(claims, "CLAIM_SECONDS", settings["lock_seconds"])  # noqa: B010 - a constant
    store = FileHealthStore(Path(settings["store"])) if ordering == "session" else None
    primary, secondary = (Endpoint.from_connection_string(**settings[side]) for side in ("primary", "secondary"))
    return NamespacePair(primary, secondary, options, observers=observers, store=store)


async def _send(pair: NamespacePair, name: str, folder: Path, rate: float, stopped: asyncio.Event) -> None:
    """Send about ``rate`` messages per second, and record the accepted ones."""
    journal = Journal(folder, name)
    async with pair:
        senders = (
            _send_to(pair.sender(entity), f"{name}.{entity}", journal, rate=rate, stopped=stopped)
            for entity in ENTITIES
        )
        await asyncio.gather(*senders)


async def _send_to(sender: PairSender, name: str, journal: Journal, *, rate: float, stopped: asyncio.Event) -> None:
    random = Random(name)  # noqa: S311 - sizes
    numbers = count()
    unsent: Sequence[Any] = ()
    async with sender:
        while not stopped.is_set():
            new = [make_message(f"{name}.{next(numbers)}") for _ in range(random.randint(1, _MAX_MESSAGES_PER_SEND))]
            try:
                result = await sender.send([*unsent, *new])
                unsent = ()
            except SendError as error:
                # Sent again, a refused message would come after those that were accepted around it.
                refused = {id(each) for each in error.refused}
                result, unsent = error.result, [each for each in error.unsent if id(each) not in refused]
            journal.record(sender.entity, result.message_ids)
            with suppress(TimeoutError):
                await asyncio.wait_for(stopped.wait(), len(new) * len(ENTITIES) / rate)


async def _drain(pair: NamespacePair, stopped: asyncio.Event) -> None:
    async with pair:
        syphon = pair.syphon()
        running = asyncio.create_task(syphon.run())
        await stopped.wait()
        syphon.stop()
        await running


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=["sender", "syphon"])
    parser.add_argument("name")
    parser.add_argument("settings")
    parser.add_argument("folder", type=Path)
    parser.add_argument("rate", type=float)
    arguments = parser.parse_args()
    stopped = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopped.set)
    ledger = Ledger(arguments.folder / LEDGERS, run=arguments.name)
    pair = open_pair(json.loads(arguments.settings), observers=[ledger])
    if arguments.role == "sender":
        await _send(pair, arguments.name, arguments.folder, arguments.rate, stopped)
    else:
        await _drain(pair, stopped)


if __name__ == "__main__":
    asyncio.run(main())
