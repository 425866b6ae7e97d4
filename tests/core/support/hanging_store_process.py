"""A process whose health store never answers: opens senders, sends with a token, and ends."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import Counter
from typing import Any

from servicebus_pair.core import EntityHealth, NamespacePair, read_pair_settings
from servicebus_pair.core.health import store_calls
from servicebus_pair.core.model import daemon_thread
from tests.core.support.entra import open_entra_namespaces, pair_settings
from tests.core.support.local_pair import numbered

SENDERS = 12


class PlainStore:
    """Blocks in plain methods."""

    def load(self, entity: str) -> EntityHealth | None:
        threading.Event().wait()
        raise AssertionError(entity)

    def save(self, entity: str, health: EntityHealth) -> None:
        threading.Event().wait()
        raise AssertionError((entity, health))


class ToThreadStore:
    """Blocks in ``asyncio.to_thread``; gives up waiting itself, so that it is called again."""

    async def load(self, entity: str) -> EntityHealth | None:
        await asyncio.wait_for(asyncio.to_thread(threading.Event().wait), 0.2)
        raise AssertionError(entity)

    async def save(self, entity: str, health: EntityHealth) -> None:
        await asyncio.wait_for(asyncio.to_thread(threading.Event().wait), 0.2)
        raise AssertionError((entity, health))


async def send(store: Any) -> None:
    warnings: Counter[str] = Counter()
    logging.getLogger("servicebus_pair.core.health.registry").addFilter(
        lambda record: not warnings.update([record.levelname])
    )
    async with open_entra_namespaces() as emulator:
        settings = read_pair_settings(pair_settings(emulator))
        async with NamespacePair(settings.primary, settings.secondary, settings.options, store=store) as pair:
            await pair.provision()
            sent = 0
            before = threading.active_count()
            for number in range(SENDERS):
                async with pair.sender("flights") as sender:
                    sent += (await sender.send(numbered(1, start=number))).primary
            assert sent == SENDERS
            assert threading.active_count() - before <= 1
            assert warnings == {"WARNING": 1}, warnings
            async with asyncio.timeout(5):
                assert await asyncio.to_thread(list) == []


if __name__ == "__main__":
    for module in (store_calls, daemon_thread):
        vars(module)["HANG_SECONDS"] = 0.5
    asyncio.run(send({"plain": PlainStore, "to_thread": ToThreadStore}[sys.argv[1]]()))
    sys.stdout.write("sent\n")
    sys.stdout.flush()
