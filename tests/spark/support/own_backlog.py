"""A backlog for a single test, and messages in it."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from servicebus_pair.core import SyncBridge
from servicebus_pair.core.ledger.writer import Ledger
from servicebus_pair.core.pair.namespace_pair import NamespacePair
from servicebus_pair.core.protocol.backlog_queues import (
    backlog_queue_paths,
    backlog_session_id,
    session_queue_for,
    session_queue_paths,
)
from servicebus_pair.core.sdk.administration.data_plane import ServiceBusAdministration
from tests.spark.conftest import BACKLOG_QUEUES, Pair, provision
from tests.system.demo.comparison import Found
from tests.system.demo.peek import peek_backlog_queues


@dataclass(frozen=True)
class OwnBacklog(Pair):
    """The shared pair under another name, with backlog queues of its own."""

    name: str

    @property
    def queues(self) -> tuple[str, ...]:
        return backlog_queue_paths(self.name, BACKLOG_QUEUES)

    def peek_backlog(self) -> list[Found]:
        return list(peek_backlog_queues(self.secondary.connection_string, self.queues))

    def divert(self, ledger: Path, entity: str, count: int, *, body: bytes = b"x") -> set[str]:
        """Send messages to ``entity`` while it is failed over; return their ids."""
        ids = [f"{entity}-{number}" for number in range(count)]

        async def send() -> None:
            opened = self.open()
            with Ledger(ledger, run="diverting") as records:
                async with NamespacePair(opened.primary, opened.secondary, opened.options, observers=[records]) as pair:
                    await pair.fail_over(entity, reason="test")
                    # Two senders, as each keeps to one backlog queue.
                    for half in (ids[::2], ids[1::2]):
                        async with pair.sender(entity) as sender:
                            await sender.send([ServiceBusMessage(body, message_id=each) for each in half])

        with SyncBridge() as bridge:
            bridge.run(send())
        return set(ids)

    def divert_session(self, entity: str, count: int, *, session: str = "s") -> set[str]:
        """Leave messages of one session of ``entity`` in its backlog queue; return their ids."""
        queues = session_queue_paths(self.name, BACKLOG_QUEUES)
        ids = [f"{entity[:20]}-{session}-{number}" for number in range(count)]
        with (
            ServiceBusClient.from_connection_string(self.secondary.connection_string) as client,
            client.get_queue_sender(session_queue_for(entity, session, queues)) as sender,
        ):
            copies = (
                ServiceBusMessage(
                    b"x",
                    message_id=each,
                    session_id=backlog_session_id(entity),
                    application_properties={"x-ms-path": entity, "x-ms-sessionid": session},
                )
                for each in ids
            )
            sender.send_messages(list(copies))
        return set(ids)

    def allow_sending(self, queue: str, *, allowed: bool) -> None:
        self.administer("primary", lambda administration: administration.set_sending(queue, enabled=allowed))

    def set_lock_duration(self, duration: timedelta) -> None:
        async def change(administration: ServiceBusAdministration) -> None:
            for path in self.queues:
                queue = await administration._client.get_queue(path)
                queue.lock_duration = duration
                await administration._client.update_queue(queue)

        self.administer("secondary", change)

    def arrived(self, queue: str) -> Counter[str]:
        """Return how many copies of each message id a queue of the primary holds."""
        return Counter(found.key[1] for found in self.peek(queue))


def own_backlog(pair: Pair, folder: Path, **changes: object) -> OwnBacklog:
    """Provision a pair with a new name on the namespaces that all tests share.

    :param changes: settings to override.
    """
    name = f"own-{uuid.uuid4().hex[:8]}"
    file = folder / f"{name}.json"
    file.touch(mode=0o600)
    file.write_text(json.dumps(pair.settings | {"primary_namespace": name}))
    own = OwnBacklog(pair.primary, pair.secondary, pair.processes, file, name)
    ordering = {name: changes[name] for name in ("ordering",) if name in changes}
    file.write_text(json.dumps(own.settings | ordering))
    with SyncBridge() as bridge:
        bridge.run(provision(own))
    file.write_text(json.dumps(own.settings | changes))
    return own
