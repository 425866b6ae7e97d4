"""The cache behind the page: looks in the background, as long as somebody looks at the page.

One thread with one event loop for all pairs. Each namespace is read once per interval, whatever the number of viewers
and of the server's processes; what is slow or dead is waited for here, and a viewer gets what was last known, with its
age.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from servicebus_pair.core.configuration import PairSettings
from servicebus_pair.ui.building import build_pair
from servicebus_pair.ui.looking import Look, Looker
from servicebus_pair.ui.pairs import known_pairs
from servicebus_pair.ui.records import Records, read_records
from servicebus_pair.ui.turns import Turn

__all__ = ["Cached", "Watch"]

_log = logging.getLogger(__name__)
# So long after the last viewer, nothing is read any more.
_LINGER_SECONDS: Final = 60.0
_FIRST_ANSWER_SECONDS: Final = 5.0
_TOGETHER_SECONDS: Final = 0.3
_SETTINGS_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Cached:
    """What is known.

    :param snapshot: all of it, as JSON: ``{"at", "interval", "problem", "pairs": [...]}``, ``at`` in seconds since the
        Unix epoch, ``problem`` why the database could not be read just now.
    :param pairs: each ``ui.snapshot.PairView`` as JSON, by connection id.
    """

    snapshot: bytes
    pairs: Mapping[str, bytes] = field(default_factory=dict)
    records: Records = field(default_factory=Records)


def _tell(message: str, *values: object) -> None:
    """Log the error at hand, unless the server ends: that takes away what this thread works with."""
    if threading.main_thread().is_alive():
        _log.exception(message, *values)


class Watch:
    """Keeps what is known fresh while it is asked for; safe to ask from any thread.

    :param interval: seconds between two looks at each namespace and at the database.
    :param folder: by which several processes take turns at looking; ``None`` where there is only this one.
    """

    def __init__(self, *, interval: float, folder: Path | None = None) -> None:
        self.interval = interval
        self._folder = folder
        self._asked_at = 0.0
        self._start = threading.Lock()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._watching: asyncio.Task[None] | None = None
        self._news: asyncio.Event | None = None
        self._read_due = 0.0
        self._settings: dict[str, PairSettings | str] = {}
        self._settings_at = -_SETTINGS_SECONDS
        self._records = Records()
        self._problem: str | None = None
        self._cached = Cached(self._encoded(time.time(), {}))
        self._looks: dict[str, Look] = {}
        self._lookers: dict[str, tuple[PairSettings, asyncio.Task[None]]] = {}

    def ask(self) -> Cached:
        """Return what is known; only the very first answer is waited for, and that for 5 s at most."""
        idle = time.monotonic() - self._asked_at > _LINGER_SECONDS
        self._asked_at = time.monotonic()
        if self._thread is None:
            self._begin()
        elif idle:
            self.hurry()
        self._ready.wait(_FIRST_ANSWER_SECONDS)
        return self._cached

    def hurry(self) -> None:
        """Have the database read now, as after a change."""
        self._read_due = 0.0
        if self._loop is not None and self._news is not None:
            self._loop.call_soon_threadsafe(self._news.set)

    def close(self) -> None:
        """End the looking; what was known stays known."""
        if self._thread is not None and self._loop is not None and self._watching is not None:
            self._loop.call_soon_threadsafe(self._watching.cancel)
            self._thread.join()

    def _begin(self) -> None:
        with self._start:
            if self._thread is None:
                # Daemonic: nothing it does needs an end, and the server must not wait for it.
                self._thread = threading.Thread(target=self._run, name="servicebus-pair-watch", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._watch())
        except asyncio.CancelledError:
            pass
        except RuntimeError:
            # A server that ends takes away what this thread works with; any other time it is an error.
            if threading.main_thread().is_alive():
                raise

    async def _watch(self) -> None:
        self._loop, self._watching, self._news = asyncio.get_running_loop(), asyncio.current_task(), asyncio.Event()
        while True:
            await self._idle()
            self._news.clear()
            if time.monotonic() >= self._read_due:
                self._read_due = time.monotonic() + self.interval
                await self._read()
                self._follow()
            await asyncio.to_thread(self._put_together)
            self._ready.set()
            try:
                await asyncio.wait_for(self._news.wait(), max(0.0, self._read_due - time.monotonic()))
            except TimeoutError:
                continue
            await asyncio.sleep(_TOGETHER_SECONDS)  # what else is new at this moment comes along

    async def _idle(self) -> None:
        """Wait while nobody looks."""
        while self._unasked:  # noqa: ASYNC110  asked from other threads, rarely
            await asyncio.sleep(_TOGETHER_SECONDS)

    @property
    def _unasked(self) -> bool:
        return time.monotonic() - self._asked_at > _LINGER_SECONDS

    async def _read(self) -> None:
        """Read the database; what it does not tell stays as it was."""
        try:
            self._records = await asyncio.to_thread(read_records, datetime.now(UTC))
            if time.monotonic() - self._settings_at >= _SETTINGS_SECONDS or set(self._records.states) - set(
                self._settings
            ):
                self._settings = await asyncio.to_thread(known_pairs, self._records.states)
                self._settings_at = time.monotonic()
        except Exception as error:  # noqa: BLE001  the page says so; the next round may fare better
            _tell("the page of the pairs cannot read Airflow's database")
            self._problem = f"Airflow's database: {type(error).__name__}"
        else:
            self._problem = None

    def _follow(self) -> None:
        """See that each pair is looked at, with the settings that it has now."""
        for conn_id, (before, task) in list(self._lookers.items()):
            if self._settings.get(conn_id) != before:
                task.cancel()
                del self._lookers[conn_id]
                self._looks.pop(conn_id, None)
        for conn_id, settings in self._settings.items():
            if isinstance(settings, PairSettings) and conn_id not in self._lookers:
                looking = asyncio.create_task(self._look_at(conn_id, settings), name=f"look {conn_id}")
                self._lookers[conn_id] = settings, looking

    async def _look_at(self, conn_id: str, settings: PairSettings) -> None:
        looker = await asyncio.to_thread(Looker, settings)
        turn = Turn(self._folder, conn_id)
        try:
            while True:
                began = time.monotonic()
                try:
                    seen = await self._seen(looker, turn)
                    if seen is not None:
                        self._looks[conn_id] = seen
                except Exception:  # noqa: BLE001  what was known stays, with its age; the next look may fare better
                    _tell("conn_id=%s: looking at its namespaces failed", conn_id)
                if self._news is not None:
                    self._news.set()
                await asyncio.sleep(max(0.0, self.interval - (time.monotonic() - began)))
                if self._unasked:
                    turn.leave()
                    await self._idle()
        finally:
            turn.leave()

    async def _seen(self, looker: Looker, turn: Turn) -> Look | None:
        """What this process sees of a pair, or another whose turn it is."""
        mine = await asyncio.to_thread(turn.take)
        known = await asyncio.to_thread(turn.get)
        if known is not None:
            looker.last = known  # since when it is so, whoever saw it first
        if not mine:
            return known
        look = await looker.look()
        await asyncio.to_thread(turn.put, look)
        return look

    def _put_together(self) -> None:
        now = time.time()
        pairs: dict[str, bytes] = {}
        for conn_id, settings in self._settings.items():
            look = self._looks.get(conn_id)
            try:
                view = build_pair(conn_id, settings, look, self._records, now=now)
            except Exception as error:  # noqa: BLE001  what others wrote about one pair must not hide the others
                _tell("conn_id=%s: what is known of it cannot be shown", conn_id)
                view = build_pair(conn_id, f"it cannot be shown: {type(error).__name__}", None, Records(), now=now)
            pairs[conn_id] = json.dumps(asdict(view), separators=(",", ":")).encode()
        self._cached = Cached(self._encoded(now, pairs), pairs, self._records)

    def _encoded(self, now: float, pairs: Mapping[str, bytes]) -> bytes:
        """The whole, of pairs that are encoded already: with many of them that is most of the work."""
        head = json.dumps({"at": now, "interval": self.interval, "problem": self._problem}, separators=(",", ":"))
        return head[:-1].encode() + b',"pairs":[' + b",".join(pairs.values()) + b"]}"
