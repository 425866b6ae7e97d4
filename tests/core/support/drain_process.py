"""A drain in its own process, to be killed; prints the number of moved messages after every step."""

from __future__ import annotations

import asyncio
import json
import sys

from servicebus_pair.core import DrainReport, Ledger, NamespacePair, read_pair_settings


async def drain(settings: dict[str, str], ledger: str) -> None:
    pair = read_pair_settings(settings)
    with Ledger(ledger, run="drain") as observer:
        async with NamespacePair(pair.primary, pair.secondary, pair.options, observers=[observer]) as open_pair:
            await open_pair.syphon().drain(progress=_print_progress)


def _print_progress(report: DrainReport) -> None:
    sys.stdout.write(f"moved {report.moved_total}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(drain(json.loads(sys.argv[1]), sys.argv[2]))
