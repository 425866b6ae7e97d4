"""Which messages an entity with duplicate detection took in lately."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as Several

from servicebus_emulator.engine.context import Context
from servicebus_emulator.engine.message import Content

__all__ = ["History"]

_SLACK = 1000


class History:
    """Message ids by the time they were first seen. An id is forgotten when the window has passed.

    A duplicate neither counts nor prolongs the time for which its id is remembered. A scheduled message
    is remembered from the moment it was accepted, and stays so when it is cancelled (Microsoft's
    "Duplicate detection").

    :param entity: the entity's key in the journal.
    :param window: for how many milliseconds an id is remembered; may be replaced at any time.
    """

    __slots__ = ("_context", "_entity", "_forgotten", "_seen", "window")

    def __init__(self, entity: int, *, window: int, context: Context) -> None:
        self.window = window
        self._entity = entity
        self._context = context
        # In order of time. An OrderedDict, because a plain dict slows down as its front is emptied.
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._forgotten = 0

    def __len__(self) -> int:
        return len(self._seen)

    def fresh(self, contents: Several[Content]) -> list[Content]:
        """Return those that were not seen within the window, of several with one id the first.

        Pings that are never delivered have no id.
        """
        self._forget()
        identify = self._context.identify
        ids: set[bytes] = set()
        fresh: list[Content] = []
        for content in contents:
            if self._counts(content):
                identity = identify(content)
                if identity in self._seen or identity in ids:
                    continue
                ids.add(identity)
            fresh.append(content)
        return fresh

    def remember(self, contents: Iterable[Content]) -> None:
        """Note messages that were taken in."""
        now = self._context.clock.now()
        for content in contents:
            if self._counts(content):
                identity = self._context.identify(content)
                self._seen[identity] = now
                self._context.journal.remember(self._entity, identity, seen_at=now)

    def restore(self, identity: bytes, *, seen_at: int) -> None:
        """Take back an id after a restart, in order of time."""
        self._seen[identity] = seen_at

    def _counts(self, content: Content) -> bool:
        return self._context.deliver_pings or not content.ping

    def _forget(self) -> None:
        past = self._context.clock.now() - self.window
        while len(self._seen) > 0 and next(iter(self._seen.values())) <= past:
            self._seen.popitem(last=False)
            self._forgotten += 1
        if self._forgotten > _SLACK:
            # Not each time: what is past is harmless on disk: it is forgotten again after a restart.
            self._forgotten = 0
            self._context.journal.forget(self._entity, until=past)
