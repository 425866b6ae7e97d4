"""``ordering="session"`` (SPEC section 6): messages of one session keep their order through divert and drain.

Four rules make it, each enforced where it belongs:

- a session's copies go to one backlog queue, chosen by its name and kept whatever happens to it;
- the syphon sends only what stands at the head of a backlog queue (``mover``), so that no message
  overtakes one that another syphon holds;
- an entity fails back only when no backlog queue holds a message for it, and while that is being
  looked up this process sends nothing to it (:meth:`SessionOrder.fail_back`);
- what another process shares as healthy is not believed before the same was seen here (``board``).

Order is what one process sends, and what processes send one after another; sends of two processes
at the same time have none. A duplicate may come after its original, as always.
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

from servicebus_pair.core.amqp_types import text, texts
from servicebus_pair.core.clients import NamespaceClient
from servicebus_pair.core.envelope import PATH
from servicebus_pair.core.errors import ServiceError

__all__ = ["SessionOrder"]

_log = logging.getLogger(__name__)
_PAGE: Final = 250
_CALL_SECONDS: Final = 10.0
# How long sends to an entity are held while its backlog is looked through.
_HELD_SECONDS: Final = 10.0
_LOOK_AGAIN_SECONDS: Final = 0.1
KeyT = TypeVar("KeyT")


class SessionOrder:
    """Where sessions are diverted to, and when an entity may fail back; one per pair and process.

    :param queues: paths of all backlog queues, in the same order in every process.
    """

    def __init__(self, secondary: NamespaceClient, queues: Sequence[str]) -> None:
        self._secondary = secondary
        self._queues = tuple(queues)
        self._under_way: Counter[str] = Counter()
        self._open: dict[str, asyncio.Event] = {}
        self._quiet: dict[str, asyncio.Event] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    def queue_for(self, entity: str, session: str) -> str:
        """Answer the backlog queue of a session; messages without one are those of the session ``""``."""
        return self._queues[zlib.crc32(f"{entity.casefold()}\0{session}".encode()) % len(self._queues)]

    def split(
        self, entity: str, copies: Mapping[KeyT, AmqpAnnotatedMessage], messages: Mapping[KeyT, AmqpAnnotatedMessage]
    ) -> dict[str, dict[KeyT, AmqpAnnotatedMessage]]:
        """Answer ``copies`` by backlog queue, each part in the order given.

        :param messages: what they are copies of, which know their sessions.
        """
        parts: dict[str, dict[KeyT, AmqpAnnotatedMessage]] = {}
        for key, copied in copies.items():
            queue = self.queue_for(entity, _session(messages[key]))
            parts.setdefault(queue, {})[key] = copied
        return parts

    async def enter(self, entity: str, *, patience: float) -> None:
        """Wait until ``entity`` is not failing back just now; it will not before :meth:`leave`.

        :param patience: seconds.
        :raises TimeoutError: it took longer, and there is nothing to leave.
        """
        folded = entity.casefold()
        while (gate := self._open.get(folded)) is not None:
            await asyncio.wait_for(gate.wait(), min(patience, 2 * _HELD_SECONDS))
        self._under_way[folded] += 1

    def leave(self, entity: str) -> None:
        """One send to ``entity`` ended."""
        folded = entity.casefold()
        self._under_way[folded] -= 1
        if not self._under_way[folded]:
            del self._under_way[folded]
            self._quiet.pop(folded, asyncio.Event()).set()

    @asynccontextmanager
    async def fail_back(self, entity: str, *, drained_within: float = 0.0) -> AsyncIterator[bool]:
        """Hold the sends to ``entity`` and answer whether its backlog is empty; then it may be declared healthy.

        :param drained_within: seconds for which the sends are held while a syphon empties the backlog; 0 does
            not wait for one.
        """
        folded = entity.casefold()
        async with self._turns.setdefault(folded, asyncio.Lock()):
            # A look without holding anybody first: most of the time there is a backlog.
            if not drained_within and not await self.is_empty(entity):
                yield False
                return
            gate = self._open[folded] = asyncio.Event()
            try:
                yield await self._quiet_and_empty(entity, patience=drained_within)
            finally:
                del self._open[folded]
                gate.set()

    async def is_empty(self, entity: str) -> bool | None:
        """Answer whether no backlog queue holds a message for ``entity``; ``None`` when that cannot be told."""
        try:
            found = await asyncio.gather(*(self._holds(queue, entity.casefold()) for queue in self._queues))
        except ServiceError as error:
            _log.warning("entity=%s: its backlog cannot be looked through: %s", entity, error)
            return None
        return not any(found)

    async def _quiet_and_empty(self, entity: str, *, patience: float) -> bool:
        folded = entity.casefold()
        try:
            async with asyncio.timeout(patience or _HELD_SECONDS):
                if self._under_way[folded]:
                    await self._quiet.setdefault(folded, asyncio.Event()).wait()
                while await self.is_empty(entity) is not True:
                    if not patience:
                        return False
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
                return True
        except TimeoutError:
            return False

    async def _holds(self, queue: str, folded: str) -> bool:
        link = self._secondary.receive_link(queue)
        first = 1
        try:
            while page := await link.peek(most=_PAGE, timeout=_CALL_SECONDS, first=first):
                if any(_path(each.raw_amqp_message) in {folded, None} for each in page):
                    return True
                first = (page[-1].sequence_number or 0) + 1
        finally:
            await link.close()
        return False


def _session(message: AmqpAnnotatedMessage) -> str:
    session = None if message.properties is None else message.properties.group_id
    return "" if session is None else text(session)


def _path(message: AmqpAnnotatedMessage) -> str | None:
    """The folded destination; ``None`` for what has none that can be read."""
    value = texts(message.application_properties).get(PATH)
    try:
        return None if value is None else text(value).casefold()
    except (UnicodeDecodeError, TypeError, AttributeError):
        return None
