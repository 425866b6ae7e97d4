"""A syphon as a process of its own, to be killed: prints a line with the count after every step."""

from __future__ import annotations

import asyncio
import json
import sys

from servicebus_pair.core import DrainReport, Ledger, NamespacePair, read_pair


async def drain(settings: dict[str, str], ledger: str) -> None:
    pair = read_pair(settings)
    with Ledger(ledger, run="drain") as observer:
        async with NamespacePair(pair.primary, pair.secondary, pair.options, observers=[observer]) as open_pair:
            await open_pair.syphon().drain(progress=_tell)


def _tell(report: DrainReport) -> None:
    sys.stdout.write(f"moved {report.moved_total}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(drain(json.loads(sys.argv[1]), sys.argv[2]))
