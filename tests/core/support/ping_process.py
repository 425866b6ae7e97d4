"""A process that loads a failed-over entity from the shared store and pings it until it is healthy."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from datetime import timedelta
from pathlib import Path

from servicebus_pair.core import EntityHealth, NamespacePair, PairOptions, read_pair_settings
from servicebus_pair.core.model.events import Event, HealthChanged, Pinged

__all__ = ["FileStore"]


class FileStore:
    """Health shared through one file per entity, replaced as a whole."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def load(self, entity: str) -> EntityHealth | None:
        try:
            return EntityHealth.from_json(json.loads(self._path(entity).read_text()))
        except FileNotFoundError:
            return None

    async def save(self, entity: str, health: EntityHealth) -> None:
        written = self._path(f"{entity}.{os.getpid()}")
        written.write_text(json.dumps(health.to_json()))
        written.replace(self._path(entity))

    def _path(self, entity: str) -> Path:
        return self._folder / f"{entity.casefold()}.json"


class PingPrinter:
    """Prints each ping."""

    def __init__(self) -> None:
        self.healthy = asyncio.Event()

    def observe(self, event: Event) -> None:
        if isinstance(event, Pinged):
            print("pinged", event.succeeded, flush=True)  # noqa: T201 - read by the test
        if isinstance(event, HealthChanged) and not event.after.failed_over:
            self.healthy.set()


async def main() -> None:
    settings, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    read = read_pair_settings(settings)
    options = PairOptions(ping_primary_interval=timedelta(seconds=1), backlog_queue_count=1)
    store, printer = FileStore(folder), PingPrinter()
    made = NamespacePair(read.primary, read.secondary, options, store=store, observers=[printer])
    async with made as pair, pair.sender("flights"):
        print("ready", pair.health("flights").state.value, flush=True)  # noqa: T201 - the same
        await printer.healthy.wait()
    print("healthy", flush=True)  # noqa: T201 - the same


if __name__ == "__main__":
    asyncio.run(main())
