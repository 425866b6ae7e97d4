"""Chaos against real processes: ``make chaos SECONDS=60 SEED=1``.

Senders, syphons and both namespaces run as processes of their own; they are killed, frozen, reset and
slowed at random. Then everything is drained, and every message is looked for in the queues themselves.
The last line of the output is a JSON object; the exit code is 0 when nothing was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from random import SystemRandom
from typing import Any

from azure.servicebus.aio.management import ServiceBusAdministrationClient

from servicebus_pair.core import Endpoint
from servicebus_pair.core.administration import ServiceBusAdministration
from servicebus_pair.core.backlog import BACKLOG_QUEUE, backlog_queues
from servicebus_pair.core.durations import parse_duration
from tests.emulator.transport import PlainTransport
from tests.system.chaos.actors import Actors
from tests.system.chaos.load import DETECTING, ENTITIES
from tests.system.chaos.mayhem import Mayhem
from tests.system.chaos.verdict import Verdict, judge, take_stock
from tests.system.chaos.worker import QUEUES, open_pair

__all__ = ["run"]

# As many messages as can be looked through at the end in reasonable time.
_MOST_MESSAGES = 300_000
_FASTEST = 300.0
_DRAIN_SECONDS = 180.0


async def run(
    *, seconds: float, seed: int, folder: Path, senders: int = 2, syphons: int = 2, lock: str = "PT1M"
) -> Verdict:
    """Rage for ``seconds``, heal, drain, judge.

    :param lock: lock duration of the backlog queues: how long what a killed syphon held is waited for.
    """
    actors = Actors(folder)
    try:
        await asyncio.gather(*(place.start() for place in actors.places))
        await _create_queues(actors, lock=lock)
        actors.hire(senders=senders, syphons=syphons, rate=min(_FASTEST, _MOST_MESSAGES / seconds))
        await Mayhem(actors, seed=seed, lock=parse_duration(lock).total_seconds()).rage(seconds)
        _say(f"raged: {dict(sorted(actors.done.items()))}")
        await actors.end("sender")
        await actors.end("syphon")
        await _drain(actors.settings)
        stock = await take_stock(actors.primary.connection_string, actors.secondary.connection_string)
        return judge(stock, folder, done=actors.done, seconds=seconds, seed=seed)
    finally:
        actors.stop()


async def _create_queues(actors: Actors, *, lock: str) -> None:
    primary, secondary = actors.primary.endpoint, actors.secondary.endpoint
    client = ServiceBusAdministrationClient.from_connection_string(
        primary["text"].replace(Endpoint.from_connection_string(**primary).host, primary["administration"]),
        transport=PlainTransport(),
    )
    async with client:
        for entity in ENTITIES:
            detection = {"requires_duplicate_detection": True, "duplicate_detection_history_time_window": "P1D"}
            more: dict[str, Any] = detection if entity == DETECTING else {}
            await client.create_queue(entity, **more)
    async with ServiceBusAdministration(Endpoint.from_connection_string(**secondary)) as administration:
        for queue in backlog_queues("contoso", QUEUES):
            await administration.create_queue(queue, replace(BACKLOG_QUEUE, lock_duration=lock))


async def _drain(settings: dict[str, Any]) -> None:
    until = time.monotonic() + _DRAIN_SECONDS
    async with open_pair(settings) as pair:
        while time.monotonic() < until:
            report = await pair.syphon().drain()
            _say(f"drained: moved {report.moved_total}, left {report.left}, failures {dict(report.failures)}")
            if report.empty:
                return


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - a run of minutes says what it does


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--senders", type=int, default=2)
    parser.add_argument("--syphons", type=int, default=2)
    parser.add_argument("--lock", default="PT1M", help="lock duration of the backlog queues, ISO 8601")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        verdict = asyncio.run(run(**{**vars(given), "folder": Path(folder)}))
    print(json.dumps(verdict.as_json()))  # noqa: T201 - the result
    return 0 if verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
