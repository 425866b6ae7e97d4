"""What a task has sent and moved, noted while it runs, so that the page of the pairs can show it.

The notes are a value in the task's own state (``servicebus_pair/CONN_ID``): one writer for each, gone with the run, and
nothing that two tasks could overwrite. A task that is tried again or resumes after a deferral goes on with them.

Shape: ``{"v": 1, "at": unix seconds, "sends": [[slot, primary, backlog], ...], "entities": {entity: [primary,
backlog]}, "syphoned": n, "home": {entity: n}, "dead_lettered": {reason: n}, "per_second": x, "operations": {name:
n}}``; a slot is the number of 5-minute intervals since the Unix epoch, ``home`` what was moved out of the backlog.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.core.events import SLOT_SECONDS, DeadLettered, Event, MessagesAccepted, MessagesSyphoned, Route
from servicebus_pair.hooks.state import TaskState

if TYPE_CHECKING:
    from servicebus_pair.core.meter import Meter

__all__ = ["NOTES_KEY_PREFIX", "TaskNotes"]

NOTES_KEY_PREFIX: Final = "servicebus_pair/"
_SLOTS: Final = 288  # a day
_MOST_NAMES: Final = 500
_BETWEEN_SECONDS: Final = 3.0
_LAST_SECONDS: Final = 3.0
_RATE_SECONDS: Final = 15.0
_VERSION: Final = 1


class TaskNotes:
    """An observer that sums up and, in a task, keeps the sums in the task's state.

    :param conn_id: the connection of the pair.
    :param goes_on: with what an earlier try of the task noted; otherwise in its place.
    :param now: seconds since the Unix epoch, injected by tests.
    """

    def __init__(self, conn_id: str, *, goes_on: bool = True, now: Callable[[], float] = time.time) -> None:
        self._key = NOTES_KEY_PREFIX + conn_id
        self._now = now
        self._began = now()
        self._state = TaskState()
        self._slots: dict[int, Counter[str]] = {}
        self._entities: dict[str, Counter[str]] = {}
        self._syphoned = 0
        self._home: Counter[str] = Counter()
        self._dead_lettered: Counter[str] = Counter()
        self._lately: deque[tuple[float, int]] = deque()
        self._earlier: Mapping[str, Any] | None = None if goes_on else {}
        self._written: Mapping[str, Any] | None = None

    def observe(self, event: Event) -> None:
        """Add one event to the sums."""
        match event:
            case MessagesAccepted(entity, route, _, messages, at):
                self.accepted(entity, route, len(messages), at=at)
            case MessagesSyphoned(entity, _, messages, at):
                self._syphoned += len(messages)
                self._home[entity.casefold()] += len(messages)
                self._lately.append((at, len(messages)))
            case DeadLettered(_, _, reason):
                self._dead_lettered[reason] += 1

    def accepted(self, entity: str, route: Route, count: int, *, at: float) -> None:
        """Add messages that were accepted at ``at``, seconds since the Unix epoch."""
        self._slots.setdefault(int(at // SLOT_SECONDS), Counter())[route.value] += count
        self._entities.setdefault(entity.casefold(), Counter())[route.value] += count

    @asynccontextmanager
    async def kept(self, meter: Meter | None = None) -> AsyncIterator[None]:
        """Keep the notes every few seconds, and in the end; outside a task nothing is kept.

        :param meter: its operations are kept with them.
        """
        if not self._state.there:
            yield
            return
        keeping = asyncio.create_task(self._keep_on(meter), name="notes")
        try:
            yield
        finally:
            keeping.cancel()
            await asyncio.wait({keeping})
            with suppress(TimeoutError):  # nobody waits for a note
                await asyncio.wait_for(self._keep(meter), _LAST_SECONDS)

    async def _keep_on(self, meter: Meter | None) -> None:
        while True:
            await asyncio.sleep(_BETWEEN_SECONDS)
            await self._keep(meter)

    async def _keep(self, meter: Meter | None) -> None:
        if self._earlier is None:
            found = await self._state.get(self._key)
            self._earlier = found if isinstance(found, dict) and found.get("v") == _VERSION else {}
        now = self._now()
        sums = self._sums(now, {} if meter is None else _counts(meter))
        if sums != self._written:
            await self._state.set(self._key, {**sums, "at": round(now, 3)})
            self._written = sums

    def _sums(self, now: float, operations: Mapping[str, int]) -> dict[str, Any]:
        earlier = {} if self._earlier is None else self._earlier
        first = int(now // SLOT_SECONDS) - _SLOTS
        slots = {slot: (counts["primary"], counts["backlog"]) for slot, counts in self._slots.items()}
        entities = {name: (counts["primary"], counts["backlog"]) for name, counts in self._entities.items()}
        sends = _added(((slot, (one, two)) for slot, one, two in earlier.get("sends", ())), slots)
        named = _added(earlier.get("entities", {}).items(), entities)
        return {
            "v": _VERSION,
            "sends": [[slot, *both] for slot, both in sorted(sends.items()) if slot >= first],
            "entities": {name: list(both) for name, both in sorted(named.items())[:_MOST_NAMES]},
            "syphoned": earlier.get("syphoned", 0) + self._syphoned,
            "home": dict((Counter(earlier.get("home", {})) + self._home).most_common(_MOST_NAMES)),
            "dead_lettered": dict(Counter(earlier.get("dead_lettered", {})) + self._dead_lettered),
            "per_second": self._per_second(now),
            "operations": dict(Counter(earlier.get("operations", {})) + Counter(operations)),
        }

    def _per_second(self, now: float) -> float:
        while self._lately and self._lately[0][0] < now - _RATE_SECONDS:
            self._lately.popleft()
        if not self._lately:
            return 0.0
        seconds = max(1.0, min(_RATE_SECONDS, now - self._began))
        return round(sum(count for _, count in self._lately) / seconds, 1)


def _added(earlier: Iterable[tuple[Any, Any]], mine: Mapping[Any, tuple[int, int]]) -> dict[Any, tuple[int, int]]:
    total = {name: (int(one), int(two)) for name, (one, two) in earlier}
    for name, (one, two) in mine.items():
        before = total.get(name, (0, 0))
        total[name] = (before[0] + one, before[1] + two)
    return total


def _counts(meter: Meter) -> dict[str, int]:
    return {name: count for name, count in asdict(meter.read()).items() if count}
