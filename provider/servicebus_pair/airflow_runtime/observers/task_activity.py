"""Totals of what a task sent and moved, saved while it runs so that the Service Bus pairs page can show them.

They are one value in the task's own state, under ``servicebus_pair/CONN_ID``: each has one writer and is deleted with
the run. A retried or resumed task continues its totals.

Format: ``{"v": 1, "at": unix seconds, "sends": [[slot, primary, backlog, spooled], ...], "entities": {entity: [primary,
backlog, spooled]}, "unspooled": n, "syphoned": n, "syphoned_by_entity": {entity: n}, "dead_lettered": {reason: n},
"per_second": x, "operations": {name: n}}``. A slot is the number of 5-minute intervals since the Unix epoch.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from operator import add
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.airflow_runtime.state.accessor import TaskState
from servicebus_pair.core.events import (
    SLOT_SECONDS,
    DeadLettered,
    Event,
    MessagesAccepted,
    MessagesSyphoned,
    MessagesUnspooled,
    Route,
)

if TYPE_CHECKING:
    from servicebus_pair.core import Operations
    from servicebus_pair.core.model import Meter

ACTIVITY_KEY_PREFIX: Final = "servicebus_pair/"
_SLOTS_PER_DAY: Final = 288
_MAX_ENTITIES: Final = 500
_SAVE_INTERVAL_SECONDS: Final = 3.0
_LAST_SAVE_TIMEOUT: Final = 3.0
_RATE_WINDOW_SECONDS: Final = 15.0
_VERSION: Final = 1


class TaskActivity:
    """Observer that totals messages and, in a task, saves the totals in the task's state.

    :param conn_id: the pair's connection.
    :param resume: add to the totals of an earlier try; otherwise replace them.
    :param now: clock, in seconds since the Unix epoch.
    """

    def __init__(self, conn_id: str, *, resume: bool = True, now: Callable[[], float] = time.time) -> None:
        self._key = ACTIVITY_KEY_PREFIX + conn_id
        self._now = now
        self._started_at = now()
        self._state = TaskState()
        self._slots: dict[int, Counter[str]] = {}
        self._entities: dict[str, Counter[str]] = {}
        self._syphoned = 0
        self._unspooled = 0
        self._syphoned_by_entity: Counter[str] = Counter()
        self._dead_lettered: Counter[str] = Counter()
        self._recent: deque[tuple[float, int]] = deque()
        self._earlier: Mapping[str, Any] | None = None if resume else {}
        self._saved: Mapping[str, Any] | None = None

    def observe(self, event: Event) -> None:
        """Add one event to the totals."""
        match event:
            case MessagesAccepted(entity, route, _, messages, at):
                self.accepted(entity, route, len(messages), at=at)
            case MessagesSyphoned(entity, _, messages, at):
                self._syphoned += len(messages)
                self._syphoned_by_entity[entity.casefold()] += len(messages)
                self._recent.append((at, len(messages)))
            case MessagesUnspooled(messages=messages, at=at):
                self._unspooled += len(messages)
                self._recent.append((at, len(messages)))
            case DeadLettered(_, _, reason):
                self._dead_lettered[reason] += 1

    def accepted(self, entity: str, route: Route, count: int, *, at: float) -> None:
        """Add messages that were accepted at ``at``, in seconds since the Unix epoch."""
        self._slots.setdefault(int(at // SLOT_SECONDS), Counter())[route.value] += count
        self._entities.setdefault(entity.casefold(), Counter())[route.value] += count

    @asynccontextmanager
    async def saving(self, meter: Meter | None = None) -> AsyncIterator[None]:
        """Save the totals every few seconds and at the end of the block; outside a task nothing is saved.

        :param meter: its operation counts are saved as well.
        """
        if not self._state.available:
            yield
            return
        saver = asyncio.create_task(self._save_periodically(meter), name="save task activity")
        try:
            yield
        finally:
            saver.cancel()
            await asyncio.wait({saver})
            with suppress(TimeoutError):  # a task does not wait longer than this for its statistics
                await asyncio.wait_for(self._save(meter), _LAST_SAVE_TIMEOUT)

    async def _save_periodically(self, meter: Meter | None) -> None:
        while True:
            await asyncio.sleep(_SAVE_INTERVAL_SECONDS)
            await self._save(meter)

    async def _save(self, meter: Meter | None) -> None:
        if self._earlier is None:
            found = await self._state.get(self._key)
            self._earlier = found if isinstance(found, dict) and found.get("v") == _VERSION else {}
        now = self._now()
        totals = self._totals(now, {} if meter is None else nonzero_counts(meter.read()))
        if totals != self._saved:
            await self._state.set(self._key, {**totals, "at": round(now, 3)})
            self._saved = totals

    def _totals(self, now: float, operations: Mapping[str, int]) -> dict[str, Any]:
        earlier = {} if self._earlier is None else self._earlier
        oldest_slot = int(now // SLOT_SECONDS) - _SLOTS_PER_DAY
        slots = {slot: _by_route(counts) for slot, counts in self._slots.items()}
        entities = {name: _by_route(counts) for name, counts in self._entities.items()}
        sends = _add(((slot, counts) for slot, *counts in earlier.get("sends", ())), slots)
        by_entity = _add(earlier.get("entities", {}).items(), entities)
        syphoned_by_entity = Counter(earlier.get("syphoned_by_entity", {})) + self._syphoned_by_entity
        return {
            "v": _VERSION,
            "sends": [[slot, *counts] for slot, counts in sorted(sends.items()) if slot >= oldest_slot],
            "entities": {name: list(counts) for name, counts in sorted(by_entity.items())[:_MAX_ENTITIES]},
            "syphoned": earlier.get("syphoned", 0) + self._syphoned,
            "unspooled": earlier.get("unspooled", 0) + self._unspooled,
            "syphoned_by_entity": dict(syphoned_by_entity.most_common(_MAX_ENTITIES)),
            "dead_lettered": dict(Counter(earlier.get("dead_lettered", {})) + self._dead_lettered),
            "per_second": self._rate(now),
            "operations": dict(Counter(earlier.get("operations", {})) + Counter(operations)),
        }

    def _rate(self, now: float) -> float:
        while self._recent and self._recent[0][0] < now - _RATE_WINDOW_SECONDS:
            self._recent.popleft()
        if not self._recent:
            return 0.0
        seconds = max(1.0, min(_RATE_WINDOW_SECONDS, now - self._started_at))
        return round(sum(count for _, count in self._recent) / seconds, 1)


def _by_route(counts: Counter[str]) -> tuple[int, ...]:
    return tuple(counts[route] for route in Route)


def _add(earlier: Iterable[tuple[Any, Any]], current: Mapping[Any, tuple[int, ...]]) -> dict[Any, tuple[int, ...]]:
    # An earlier version counted two routes.
    total = {key: (*map(int, counts), *(0,) * (len(Route) - len(counts))) for key, counts in earlier}
    for key, counts in current.items():
        before = total.get(key, (0,) * len(Route))
        total[key] = tuple(map(add, before, counts))
    return total


def nonzero_counts(operations: Operations) -> dict[str, int]:
    """Return operation counts as XComs and task state hold them: without those that are zero."""
    return {name: count for name, count in asdict(operations).items() if count}
