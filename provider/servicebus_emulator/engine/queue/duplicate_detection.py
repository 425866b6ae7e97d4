"""Duplicate detection: the identities of messages that an entity accepted recently."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from servicebus_emulator.engine.model.message import Content
from servicebus_emulator.engine.runtime.context import Context

_EXPIRED_PER_CLEANUP = 1000


class DuplicateDetector:
    """Remembers message identities for the duplicate detection window.

    A duplicate does not restart the window. A scheduled message is remembered from the time it was accepted, even if
    it is cancelled (Microsoft's "Duplicate detection").

    :param entity: the entity's key in the journal.
    :ivar window: in milliseconds; may be changed at any time.
    """

    __slots__ = ("_context", "_entity", "_expired_since_cleanup", "_seen", "window")

    def __init__(self, entity: int, *, window: int, context: Context) -> None:
        self.window = window
        self._entity = entity
        self._context = context
        # By time. An OrderedDict, because removing the first item of a plain dict gets slower with every removal.
        self._seen: OrderedDict[bytes, int] = OrderedDict()
        self._expired_since_cleanup = 0

    def __len__(self) -> int:
        return len(self._seen)

    def without_duplicates(self, contents: Sequence[Content]) -> list[Content]:
        """Return the messages that were not seen within the window; of several with one identity, the first.

        Pings that are never delivered are not checked.
        """
        self._expire()
        identify = self._context.identify
        batch: set[bytes] = set()
        fresh: list[Content] = []
        for content in contents:
            if self._is_checked(content):
                identity = identify(content)
                if identity in self._seen or identity in batch:
                    continue
                batch.add(identity)
            fresh.append(content)
        return fresh

    def remember(self, contents: Iterable[Content]) -> None:
        """Record the identities of accepted messages."""
        now = self._context.clock.now()
        for content in contents:
            if self._is_checked(content):
                identity = self._context.identify(content)
                self._seen[identity] = now
                self._context.journal.add_seen(self._entity, identity, seen_at=now)

    def restore(self, identity: bytes, *, seen_at: int) -> None:
        """Restore an identity after a restart. Call in order of time."""
        self._seen[identity] = seen_at

    def _is_checked(self, content: Content) -> bool:
        return self._context.deliver_pings or not content.ping

    def _expire(self) -> None:
        limit = self._context.clock.now() - self.window
        while len(self._seen) > 0 and next(iter(self._seen.values())) <= limit:
            self._seen.popitem(last=False)
            self._expired_since_cleanup += 1
        if self._expired_since_cleanup > _EXPIRED_PER_CLEANUP:
            # Rows that have expired are harmless on disk, because a restart expires them again: delete them rarely.
            self._expired_since_cleanup = 0
            self._context.journal.expire_seen(self._entity, until=limit)
