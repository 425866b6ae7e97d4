"""Chaos test with real processes: ``make chaos SECONDS=60 SEED=1 ORDERING=session``, or ``SPOOL=1``.

Senders, syphons and both namespaces run in separate processes, which are killed, frozen, disconnected and slowed down
at random; with a spool, neither namespace takes anything at times. Then the backlog is drained and every message is
searched for in the queues. The last line of the output is a JSON object; the exit status is 0 if no message was lost,
and in session order none came out of order.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
import time
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from random import SystemRandom
from typing import Any

from servicebus_pair.core import Endpoint
from servicebus_pair.core.protocol.backlog_queues import (
    BACKLOG_QUEUE,
    SESSION_QUEUE,
    backlog_queue_paths,
    session_prefix,
    session_queue_paths,
)
from servicebus_pair.core.protocol.iso_duration import parse_duration
from servicebus_pair.core.sdk.administration.data_plane import ServiceBusAdministration
from tests.system.chaos.fault_injector import FaultInjector
from tests.system.chaos.messages import DEDUPLICATED, ENTITIES, read_journals
from tests.system.chaos.processes import Processes
from tests.system.chaos.verdict import Verdict, peek_queues, verdict_on
from tests.system.chaos.worker import QUEUES, open_pair
from tests.system.platform.leftovers import wait_until

_MAX_MESSAGES = 300_000  # peeking more at the end would take too long
_MAX_RATE = 300.0
_DRAIN_TIMEOUT = 180.0


async def run(
    *,
    seconds: float,
    seed: int,
    folder: Path,
    senders: int = 2,
    syphons: int = 2,
    lock: str = "PT1M",
    ordering: str = "none",
    spools: bool = False,
) -> Verdict:
    """Inject faults for ``seconds``, drain and compare.

    :param lock: lock duration of the backlog queues: how long messages that a killed syphon had locked stay locked.
    :param spools: the pair has a spool, and both namespaces are down at times.
    """
    lock_seconds = parse_duration(lock).total_seconds()
    processes = Processes(folder, ordering=ordering, spools=spools, lock_seconds=lock_seconds)
    try:
        await asyncio.gather(*(namespace.start() for namespace in processes.namespaces))
        await _create_queues(processes, lock=lock)
        processes.start_workers(senders=senders, syphons=syphons, rate=min(_MAX_RATE, _MAX_MESSAGES / seconds))
        # On a busy machine, a short run would otherwise end before the first send.
        await asyncio.to_thread(wait_until, lambda: any(read_journals(folder)), seconds=60, what="a sender sends")
        injector = FaultInjector(processes, seed=seed, lock_duration=lock_seconds)
        await injector.run(seconds)
        _log(f"injected: {dict(sorted(processes.actions.items()))}")
        await processes.stop_workers("sender")
        await processes.stop_workers("syphon")
        await _drain(processes.settings)
        contents = await peek_queues(*(each.served.connection_string for each in processes.namespaces))
        left = await _left_in_sessions(processes)
        spooled = 0 if processes.spool is None else await _left_in_spool(processes.settings)
        return verdict_on(
            contents,
            folder,
            actions=processes.actions,
            seconds=seconds,
            seed=seed,
            ordering=ordering,
            elsewhere=left + spooled,
        )
    finally:
        processes.stop()


async def _create_queues(processes: Processes, *, lock: str) -> None:
    for entity in ENTITIES:
        detection = {
            "requires_duplicate_detection": True,
            "duplicate_detection_history_time_window": timedelta(days=1),
        }
        processes.primary.served.create_queue(entity, **(detection if entity == DEDUPLICATED else {}))
    secondary = Endpoint.from_connection_string(**processes.secondary.endpoint)
    async with ServiceBusAdministration(secondary) as administration:
        for queue in backlog_queue_paths("contoso", QUEUES):
            await administration.create_queue(queue, replace(BACKLOG_QUEUE, lock_duration=lock))
        for queue in session_queue_paths("contoso", QUEUES):
            await administration.create_queue(queue, replace(SESSION_QUEUE, lock_duration=lock))


async def _left_in_sessions(processes: Processes) -> int:
    """Return how many messages the session queues hold, which nobody can peek at without their sessions."""
    secondary = Endpoint.from_connection_string(**processes.secondary.endpoint)
    async with ServiceBusAdministration(secondary) as administration:
        return sum(
            depth.active + depth.dead_lettered for depth in await administration.queue_depths(session_prefix("contoso"))
        )


async def _left_in_spool(settings: dict[str, Any]) -> int:
    return sum(each.messages for each in (await open_pair(settings).spooled()).values())


async def _drain(settings: dict[str, Any]) -> None:
    deadline = time.monotonic() + _DRAIN_TIMEOUT
    async with open_pair(settings) as pair:
        while time.monotonic() < deadline:
            report = await pair.syphon().drain()
            done = f"moved {report.moved_total}, unspooled {sum(report.unspooled.values())}, left {report.left}"
            _log(f"drained: {done}, failures {dict(report.failures)}")
            if report.empty:
                return


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - progress of a run of minutes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.system.chaos", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(10**6))
    parser.add_argument("--senders", type=int, default=2)
    parser.add_argument("--syphons", type=int, default=2)
    parser.add_argument("--lock", default="PT1M", help="lock duration of the backlog queues, ISO 8601")
    parser.add_argument("--ordering", choices=["none", "session"], default="none")
    parser.add_argument("--spool", dest="spools", action="store_true", help="both namespaces are down at times")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        verdict = asyncio.run(run(**{**vars(arguments), "folder": Path(folder)}))
    print(json.dumps(verdict.as_json()))  # noqa: T201 - the result
    return 0 if verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
