"""``ordering="session"`` (SPEC section 6): messages of a session keep their order through divert and drain.

Four rules ensure this, each enforced where it belongs:

- A session's copies always go to the same backlog queue, chosen by a hash of entity and session id.
- The syphon relays only from the head of a backlog queue (``syphon.queue_worker``), so that no message overtakes one
  that another syphon has locked.
- An entity fails back only when no backlog queue holds a message for it, and this process sends nothing to the entity
  while it checks (:meth:`SessionOrdering.fail_back`).
- A "healthy" shared by another process is not adopted; only our own ping fails an entity back (``registry``).

The order is that of sends in one process, and of sends in different processes that do not overlap. Concurrent sends of
two processes have no order. A duplicate may follow its original, as always.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

from azure.servicebus.amqp import AmqpAnnotatedMessage

from servicebus_pair.core.model.errors import ServiceError
from servicebus_pair.core.protocol.backlog_message import destination_of
from servicebus_pair.core.protocol.typed_values import to_text
from servicebus_pair.core.sdk.message_browser import MessageBrowser
from servicebus_pair.core.sdk.namespace_client import NamespaceClient

__all__ = ["SessionOrdering"]

_log = logging.getLogger(__name__)
_PAGE_SIZE: Final = 250
_PEEK_TIMEOUT: Final = 10.0
# How long sends to an entity may be held while its backlog is searched.
_MAX_HOLD_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.1
KeyT = TypeVar("KeyT")


class SessionOrdering:
    """Chooses backlog queues by session and gates failback; one per pair and process.

    :param queues: paths of all backlog queues, in the same order in every process.
    """

    def __init__(self, secondary: NamespaceClient, queues: Sequence[str]) -> None:
        self._secondary = secondary
        self._queues = tuple(queues)
        self._sends_in_flight: Counter[str] = Counter()
        self._no_sends: dict[str, asyncio.Event] = {}
        self._failed_back: dict[str, asyncio.Event] = {}
        self._failback_locks: dict[str, asyncio.Lock] = {}

    def queue_for(self, entity: str, session: str) -> str:
        """Return the backlog queue of a session; messages without a session id count as session ``""``."""
        return self._queues[zlib.crc32(f"{entity.casefold()}\0{session}".encode()) % len(self._queues)]

    def group_by_queue(
        self, entity: str, copies: Mapping[KeyT, AmqpAnnotatedMessage], messages: Mapping[KeyT, AmqpAnnotatedMessage]
    ) -> dict[str, dict[KeyT, AmqpAnnotatedMessage]]:
        """Return ``copies`` grouped by backlog queue, in the given order.

        :param messages: the originals of the copies, which have the session ids.
        """
        groups: dict[str, dict[KeyT, AmqpAnnotatedMessage]] = {}
        for key, copied in copies.items():
            queue = self.queue_for(entity, _session(messages[key]))
            groups.setdefault(queue, {})[key] = copied
        return groups

    async def enter_send(self, entity: str, *, timeout: float) -> None:
        """Wait until no failback of ``entity`` is in progress; none begins before :meth:`leave_send`.

        :param timeout: seconds.
        :raises TimeoutError: it took longer; then :meth:`leave_send` must not be called.
        """
        folded = entity.casefold()
        while (failed_back := self._failed_back.get(folded)) is not None:
            await asyncio.wait_for(failed_back.wait(), min(timeout, 2 * _MAX_HOLD_SECONDS))
        self._sends_in_flight[folded] += 1

    def leave_send(self, entity: str) -> None:
        """End a send that :meth:`enter_send` admitted."""
        folded = entity.casefold()
        self._sends_in_flight[folded] -= 1
        if not self._sends_in_flight[folded]:
            del self._sends_in_flight[folded]
            self._no_sends.pop(folded, asyncio.Event()).set()

    @asynccontextmanager
    async def fail_back(self, entity: str, *, drain_timeout: float = 0.0) -> AsyncIterator[bool]:
        """Hold the sends to ``entity`` and yield whether its backlog is empty; if so it may be declared healthy.

        :param drain_timeout: seconds to hold the sends while a syphon drains the backlog; 0 does not wait for one.
        """
        folded = entity.casefold()
        async with self._failback_locks.setdefault(folded, asyncio.Lock()):
            # Check without holding sends first: most of the time there is a backlog.
            if not drain_timeout and not await self.is_empty(entity):
                yield False
                return
            failed_back = self._failed_back[folded] = asyncio.Event()
            try:
                yield await self._is_quiet_and_empty(entity, drain_timeout=drain_timeout)
            finally:
                del self._failed_back[folded]
                failed_back.set()

    async def is_empty(self, entity: str) -> bool | None:
        """Return whether no backlog queue holds a message for ``entity``; ``None`` if the queues cannot be read."""
        try:
            found = await asyncio.gather(*(self._holds(queue, entity.casefold()) for queue in self._queues))
        except ServiceError as error:
            _log.warning("entity=%s: its backlog cannot be read: %s", entity, error)
            return None
        return not any(found)

    async def _is_quiet_and_empty(self, entity: str, *, drain_timeout: float) -> bool:
        folded = entity.casefold()
        try:
            async with asyncio.timeout(drain_timeout or _MAX_HOLD_SECONDS):
                if self._sends_in_flight[folded]:
                    await self._no_sends.setdefault(folded, asyncio.Event()).wait()
                while await self.is_empty(entity) is not True:
                    if not drain_timeout:
                        return False
                    await asyncio.sleep(_POLL_SECONDS)
                return True
        except TimeoutError:
            return False

    async def _holds(self, queue: str, folded: str) -> bool:
        link = self._secondary.receive_link(queue)
        browser = MessageBrowser(link, page_size=_PAGE_SIZE, timeout=_PEEK_TIMEOUT)
        try:
            async for page in browser.readable_pages():
                if any(_may_be_for(folded, each.raw_amqp_message) for each in page):
                    return True
        finally:
            await link.close()
        return bool(browser.undecodable)


def _session(message: AmqpAnnotatedMessage) -> str:
    session = None if message.properties is None else message.properties.group_id
    return "" if session is None else to_text(session)


def _may_be_for(folded: str, message: AmqpAnnotatedMessage) -> bool:
    """Return whether a backlog message is for this entity, or for one that cannot be read."""
    entity = destination_of(message)
    return entity is None or entity.casefold() == folded
