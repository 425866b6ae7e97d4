"""Renews the locks of received messages until they are settled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from servicebus_pair.core.model.errors import LockLostError, ServiceError
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.sdk.received_message import ReceivedMessage

_log = get_logger(__name__)
# A lock lasts 5 s to 5 min by the service's clock, which may differ from ours.
_MIN_PAUSE: Final = 1.0
_MAX_PAUSE: Final = 20.0


class MessageLocks:
    """The messages that are held under a lock; :meth:`keep` renews each after half of its lock.

    :param renew: renews the locks of messages; returns for each its failure or ``None``.
    :param entity: named in log lines.
    """

    def __init__(
        self,
        renew: Callable[[Sequence[ReceivedMessage]], Awaitable[Sequence[ServiceError | None]]],
        *,
        entity: str,
        clock: Clock,
    ) -> None:
        self._renew = renew
        self._entity = entity
        self._clock = clock
        self._due: dict[ReceivedMessage, float] = {}
        self._added = asyncio.Event()

    def __len__(self) -> int:
        return len(self._due)

    def held(self) -> list[ReceivedMessage]:
        """Return the messages that are held."""
        return list(self._due)

    def hold(self, messages: Iterable[ReceivedMessage]) -> None:
        """Renew the locks of ``messages`` from now on."""
        for message in messages:
            self._due[message] = self._next(message)
        self._added.set()

    def drop(self, messages: Iterable[ReceivedMessage]) -> None:
        """Renew the locks of ``messages`` no more."""
        for message in messages:
            self._due.pop(message, None)

    async def keep(self) -> None:
        """Renew forever."""
        while True:
            while not self._due:
                self._added.clear()
                await self._added.wait()
            await self._clock.sleep(max(0.0, min(self._due.values()) - self._clock.now()))
            now = self._clock.now()
            due = [message for message, at in self._due.items() if at <= now]
            if due:
                await self._renew_due(due)

    async def _renew_due(self, due: Sequence[ReceivedMessage]) -> None:
        outcomes = await self._renew(due)
        lost = [message for message, error in zip(due, outcomes, strict=True) if isinstance(error, LockLostError)]
        if lost:
            _log.warning("entity=%s: locks lost=%d: these messages come again", self._entity, len(lost))
            self.drop(lost)
        for message in due:
            if message in self._due:
                self._due[message] = self._next(message)

    def _next(self, message: ReceivedMessage) -> float:
        now = self._clock.now()
        until = message.locked_until
        half = _MIN_PAUSE if until is None else (until.timestamp() - now) / 2
        return now + min(_MAX_PAUSE, max(_MIN_PAUSE, half))
