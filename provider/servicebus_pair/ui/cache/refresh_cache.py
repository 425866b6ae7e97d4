"""Cache behind the page, refreshed in the background while somebody has the page open.

One thread with one event loop serves all pairs. Each namespace is polled once per interval, whatever the number of
viewers and API-server processes. Slow or dead namespaces delay only this thread: requests return cached data with its
age.
"""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from servicebus_pair.airflow_runtime.airflow_version import missing_on_page
from servicebus_pair.core import PairSettings
from servicebus_pair.core.model import get_logger
from servicebus_pair.ui.cache.leader_lock import LeaderLock
from servicebus_pair.ui.sources.airflow_queries import Records, read_records
from servicebus_pair.ui.sources.collector import Collector, PairStatus, unwatched
from servicebus_pair.ui.sources.connections import load_pair_settings
from servicebus_pair.ui.sources.reports import ReportStore
from servicebus_pair.ui.view.access import change_runs, dag_ids_of, without_dags
from servicebus_pair.ui.view.view_builder import build_pair_view
from servicebus_pair.ui.views import PairView, RunView

_log = get_logger(__name__)
# Polling stops this long after the last request.
_IDLE_SECONDS: Final = 60.0
_FIRST_RESULT_TIMEOUT: Final = 5.0
# Changes within this window are rendered together.
_DEBOUNCE_SECONDS: Final = 0.3
_SETTINGS_SECONDS: Final = 30.0
_UNWATCHED: Final = "not queried: no DAG has the asset of this pair, see [servicebus_pair] page_pairs"


@dataclass(frozen=True, slots=True)
class CachedData:
    """Displayed data at one time.

    :param head: JSON object that :meth:`snapshot` adds the pairs to: ``{"at", "interval", "problem", "missing"}``,
        with ``at`` in seconds since the Unix epoch, ``problem`` saying why Airflow's database could not be read, and
        ``missing`` what this version of Airflow has no data for.
    :param pairs: JSON of each ``ui.views.PairView``, by connection id, for users who may read all DAGs.
    :param views: the same, not encoded.
    :param dag_ids: the DAGs that each view names.
    """

    head: bytes
    pairs: Mapping[str, bytes] = field(default_factory=dict)
    records: Records = field(default_factory=Records)
    views: Mapping[str, PairView] = field(default_factory=dict)
    dag_ids: Mapping[str, frozenset[str]] = field(default_factory=dict)
    _restricted: dict[frozenset[str], Mapping[str, bytes]] = field(default_factory=dict, repr=False, compare=False)
    _snapshots: dict[tuple[frozenset[str], frozenset[str]], bytes] = field(
        default_factory=dict, repr=False, compare=False
    )

    def pairs_without(self, hidden: frozenset[str]) -> Mapping[str, bytes]:
        """Return the JSON of each pair for users who may not read the DAGs in ``hidden``."""
        if not hidden:
            return self.pairs
        if hidden not in self._restricted:
            self._restricted[hidden] = {
                conn_id: _encode(without_dags(view, self.records.dags.get(conn_id, ()), hidden))
                if hidden & self.dag_ids[conn_id]
                else self.pairs[conn_id]
                for conn_id, view in self.views.items()
            }
        return self._restricted[hidden]

    def snapshot(self, hidden: frozenset[str], shown: frozenset[str]) -> bytes:
        """Return the JSON of the pairs in ``shown``: ``{"at", "interval", "problem", "missing", "pairs": [...]}``."""
        if (hidden, shown) not in self._snapshots:
            # Concatenated: encoding the pairs again would double the work with many pairs. Kept: each copy lives as
            # long as it is sent.
            pairs = b",".join(pair for name, pair in self.pairs_without(hidden).items() if name in shown)
            self._snapshots[hidden, shown] = self.head[:-1] + b',"pairs":[' + pairs + b"]}"
        return self._snapshots[hidden, shown]


def _log_exception(message: str, *values: object) -> None:
    """Log the current exception, except during interpreter shutdown, which breaks this thread's work anyway."""
    if threading.main_thread().is_alive():
        _log.exception(message, *values)


class RefreshCache:
    """Displayed data of all pairs, refreshed while :meth:`get` is called; thread-safe.

    :param interval: seconds between two reads of each namespace and of the database.
    :param folder: folder through which several processes elect one to poll; ``None`` for a single process.
    :param reports: where reconcile reports are; none if not given.
    :param pairs: connection ids of the pairs whose namespaces are queried; ``*`` is all, ``None`` those that have an
        asset in a DAG. The spools of those that it names are looked into wherever they are.
    """

    def __init__(
        self,
        *,
        interval: float,
        folder: Path | None = None,
        reports: ReportStore | None = None,
        pairs: Collection[str] | None = None,
    ) -> None:
        self.interval = interval
        self._pairs = pairs
        self.reports = ReportStore(None) if reports is None else reports
        self._folder = folder
        self._requested_at = 0.0
        self._started_at = 0.0
        self._start_lock = threading.Lock()
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._refresh_task: asyncio.Task[None] | None = None
        self._changed: asyncio.Event | None = None
        self._database_due = 0.0
        self._settings: dict[str, PairSettings | str] = {}
        self._settings_read_at = -_SETTINGS_SECONDS
        self._records = Records()
        self._problem: str | None = None
        self._cached = CachedData(self._head(time.time()))
        self._statuses: dict[str, PairStatus] = {}
        self._collectors: dict[str, tuple[PairSettings, asyncio.Task[None]]] = {}

    def get(self) -> CachedData:
        """Return the cached data; calls wait for the first result until 5 s after the first call."""
        was_idle = self._is_idle
        self._requested_at = time.monotonic()
        if self._thread is None:
            self._start()
        elif was_idle:
            self.refresh_now()
        # Not 5 s for each call: while nothing answers, waiting requests would take all threads of the server.
        self._ready.wait(max(0.0, self._started_at + _FIRST_RESULT_TIMEOUT - time.monotonic()))
        return self._cached

    def refresh_now(self) -> None:
        """Read the database now, for example after an action changed it."""
        self._database_due = 0.0
        if self._loop is not None and self._changed is not None:
            self._loop.call_soon_threadsafe(self._changed.set)

    def close(self) -> None:
        """Stop refreshing; the cached data remains available."""
        if self._thread is not None and self._loop is not None and self._refresh_task is not None:
            self._loop.call_soon_threadsafe(self._refresh_task.cancel)
            self._thread.join()

    def _start(self) -> None:
        with self._start_lock:
            if self._thread is None:
                self._started_at = time.monotonic()
                # Daemon: it has nothing to clean up, and must not delay the exit of the server.
                self._thread = threading.Thread(target=self._run, name="servicebus-pair-refresh", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        try:
            asyncio.run(self._refresh())
        except asyncio.CancelledError:
            pass
        except RuntimeError:
            # "cannot schedule new futures" is expected at interpreter shutdown, and an error at any other time.
            if threading.main_thread().is_alive():
                raise

    async def _refresh(self) -> None:
        self._loop, self._refresh_task, self._changed = (
            asyncio.get_running_loop(),
            asyncio.current_task(),
            asyncio.Event(),
        )
        while True:
            await self._wait_while_idle()
            self._changed.clear()
            if time.monotonic() >= self._database_due:
                self._database_due = time.monotonic() + self.interval
                await self._read_database()
            try:
                self._update_collectors()
                await asyncio.to_thread(self._render)
            except Exception as error:  # noqa: BLE001  a thread that ended would leave old data on the page for good
                _log_exception("cannot refresh the Service Bus pairs page")
                self._problem = f"this page cannot be refreshed: {type(error).__name__}"
                self._cached = replace(self._cached, head=self._head(time.time()))
            self._ready.set()
            try:
                await asyncio.wait_for(self._changed.wait(), max(0.0, self._database_due - time.monotonic()))
            except TimeoutError:
                continue
            await asyncio.sleep(_DEBOUNCE_SECONDS)

    async def _wait_while_idle(self) -> None:
        while self._is_idle:  # noqa: ASYNC110  set by other threads, and rarely
            await asyncio.sleep(_DEBOUNCE_SECONDS)

    @property
    def _is_idle(self) -> bool:
        return time.monotonic() - self._requested_at > _IDLE_SECONDS

    async def _read_database(self) -> None:
        """Read records and settings; on an error the previous ones remain."""
        try:
            self._records = await asyncio.to_thread(read_records, datetime.now(UTC))
            new_pairs = set(self._records.states) - set(self._settings)
            if new_pairs or time.monotonic() - self._settings_read_at >= _SETTINGS_SECONDS:
                self._settings = await asyncio.to_thread(load_pair_settings, self._records.states)
                self._settings_read_at = time.monotonic()
        except Exception as error:  # noqa: BLE001  displayed on the page; the next round may succeed
            _log_exception("cannot read Airflow's database for the Service Bus pairs page")
            self._problem = f"Airflow's database cannot be read: {type(error).__name__}"
        else:
            self._problem = None

    def _update_collectors(self) -> None:
        """Run one collector for each pair, with its current settings."""
        for conn_id, (settings_used, task) in list(self._collectors.items()):
            if self._settings.get(conn_id) != settings_used or not self._is_watched(conn_id) or task.done():
                task.cancel()
                del self._collectors[conn_id]
                self._statuses.pop(conn_id, None)
        for conn_id, settings in self._settings.items():
            if not isinstance(settings, PairSettings):
                continue
            if not self._is_watched(conn_id):
                self._statuses[conn_id] = unwatched(settings, _UNWATCHED)
            elif conn_id not in self._collectors:
                self._statuses.pop(conn_id, None)
                task = asyncio.create_task(self._collect_forever(conn_id, settings), name=f"collect {conn_id}")
                self._collectors[conn_id] = settings, task

    def _is_watched(self, conn_id: str) -> bool:
        if self._pairs is None:
            return conn_id in self._records.asset_ids
        return "*" in self._pairs or conn_id in self._pairs

    async def _collect_forever(self, conn_id: str, settings: PairSettings) -> None:
        collector: Collector | None = None
        lock = LeaderLock(self._folder, conn_id)
        try:
            while True:
                started = time.monotonic()
                try:
                    if collector is None:
                        collector = await asyncio.to_thread(
                            Collector, settings, any_store=conn_id in (self._pairs or ())
                        )
                    status = await self._collect_or_read(collector, lock)
                    if status is not None:
                        self._statuses[conn_id] = status
                except Exception as error:  # noqa: BLE001  the previous counts remain, with their age
                    _log_exception("conn_id=%s: cannot collect the status of its namespaces", conn_id)
                    reason = f"this server cannot query it: {type(error).__name__}"
                    known = self._statuses.get(conn_id)
                    self._statuses[conn_id] = (
                        unwatched(settings, reason) if known is None else replace(known, error=reason)
                    )
                if self._changed is not None:
                    self._changed.set()
                await asyncio.sleep(max(0.0, self.interval - (time.monotonic() - started)))
                if self._is_idle:
                    lock.release()
                    await self._wait_while_idle()
        finally:
            lock.release()

    async def _collect_or_read(self, collector: Collector, lock: LeaderLock) -> PairStatus | None:
        """Collect the status as the leader, else read what the leader published."""
        is_leader = await asyncio.to_thread(lock.try_acquire)
        published = await asyncio.to_thread(lock.read)
        if published is not None:
            collector.status = published  # a new leader continues from the status of the previous one
        if not is_leader:
            return published
        status = await collector.collect()
        await asyncio.to_thread(lock.publish, status)
        return status

    def _render(self) -> None:
        now = time.time()
        views: dict[str, PairView] = {}
        encoded: dict[str, bytes] = {}
        for conn_id, settings in self._settings.items():
            status = self._statuses.get(conn_id)
            try:
                view = change_runs(build_pair_view(conn_id, settings, status, self._records, now=now), self._with_proof)
                encoded[conn_id] = _encode(view)
            except Exception as error:  # noqa: BLE001  invalid stored data of one pair must not hide the others
                _log_exception("conn_id=%s: cannot build the view of this pair", conn_id)
                problem = f"its data cannot be displayed: {type(error).__name__}"
                view = build_pair_view(conn_id, problem, None, Records(), now=now)
                encoded[conn_id] = _encode(view)
            views[conn_id] = view
        self._cached = CachedData(
            self._head(now),
            encoded,
            self._records,
            views,
            {conn_id: dag_ids_of(view, self._records.dags.get(conn_id, ())) for conn_id, view in views.items()},
        )

    def _with_proof(self, run: RunView) -> RunView:
        found = self.reports.summary(run.dag_id, run.run_id) if run.report else None
        return run if found is None else replace(run, lost=found.lost, verdict=found.verdict)

    def _head(self, now: float) -> bytes:
        head = {"at": now, "interval": self.interval, "problem": self._problem, "missing": missing_on_page()}
        return json.dumps(head, separators=(",", ":")).encode()


# Characters that change the direction of writing, as JSON escapes them: not behind an odd number of backslashes.
_DIRECTIONS: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\(u(?:061c|200[ef]|202[a-e]|206[6-9]))")


def _encode(view: PairView) -> bytes:
    # No NaN, which a browser does not read: it would take all pairs off the page.
    text = json.dumps(asdict(view), separators=(",", ":"), allow_nan=False)
    # Displayed as they are written here: they would make a name look like another one.
    return _DIRECTIONS.sub(r"\1\\\\\2", text).encode()
