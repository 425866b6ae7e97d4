"""A backlog of a test's own, and messages in it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from azure.servicebus import ServiceBusMessage

from servicebus_pair.core import Bridge, read_pair
from servicebus_pair.core.administration import ServiceBusAdministration
from servicebus_pair.core.backlog import backlog_queues
from servicebus_pair.core.ledger import Ledger
from servicebus_pair.core.pair import NamespacePair
from tests.spark.conftest import BACKLOG_QUEUES, Pair, provision
from tests.system.demo.compare import Found
from tests.system.demo.peek import peek_backlog_queues

__all__ = ["OwnBacklog", "own_backlog"]


@dataclass(frozen=True)
class OwnBacklog(Pair):
    """The pair of all tests under another name, so that its backlog queues are this test's alone."""

    name: str

    @property
    def queues(self) -> tuple[str, ...]:
        return backlog_queues(self.name, BACKLOG_QUEUES)

    def held_by_backlog(self) -> list[Found]:
        """Return all messages of the backlog queues, dead letters too."""
        return list(peek_backlog_queues(self.secondary.connection_string, self.queues))

    def divert(self, ledger: Path, entity: str, count: int, *, body: bytes = b"x") -> set[str]:
        """Send messages to ``entity`` while it is failed over; return their ids."""
        ids = [f"{entity}-{number}" for number in range(count)]

        async def send() -> None:
            opened = self.open()
            with Ledger(ledger, run="diverting") as records:
                async with NamespacePair(opened.primary, opened.secondary, opened.options, observers=[records]) as pair:
                    pair.fail_over(entity, reason="a test says so")
                    # Two senders, as each keeps to one backlog queue.
                    for half in (ids[::2], ids[1::2]):
                        async with pair.sender(entity) as sender:
                            await sender.send([ServiceBusMessage(body, message_id=each) for each in half])

        with Bridge() as bridge:
            bridge.run(send())
        return set(ids)

    def allow_sending(self, queue: str, *, allowed: bool) -> None:
        """Close a queue of the primary to senders, or open it again."""

        async def set_status() -> None:
            async with ServiceBusAdministration(read_pair(self.settings).primary) as administration:
                await administration.allow_sending(queue, allowed=allowed)

        with Bridge() as bridge:
            bridge.run(set_status())

    def lock_for(self, duration: timedelta) -> None:
        """Have what a receiver of the backlog holds come back so long after its death."""

        async def change() -> None:
            async with ServiceBusAdministration(read_pair(self.settings).secondary) as administration:
                for path in self.queues:
                    queue = await administration._client.get_queue(path)
                    queue.lock_duration = duration
                    await administration._client.update_queue(queue)

        with Bridge() as bridge:
            bridge.run(change())

    def arrived(self, queue: str) -> Counter[str]:
        """Return how many copies of each message id a queue of the primary holds."""
        return Counter(found.key[1] for found in self.held(queue))


def own_backlog(pair: Pair, home: Path, name: str, **changes: object) -> OwnBacklog:
    """Make the backlog queues of a pair of this name, on the namespaces of all tests.

    :param changes: settings of the pair that differ.
    """
    file = home / f"{name}.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(pair.settings | {"primary_namespace": name}))
    own = OwnBacklog(pair.primary, pair.secondary, pair.processes, file, name)
    with Bridge() as bridge:
        bridge.run(provision(own))
    file.write_text(json.dumps(own.settings | changes))
    return own
