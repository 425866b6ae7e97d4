"""Builds the view of a pair from the status of its namespaces and the records in the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, Final

from servicebus_pair.airflow_runtime.airflow_version import has
from servicebus_pair.airflow_runtime.state.spool_sightings import SPOOLS_KEY, parse_sightings
from servicebus_pair.airflow_runtime.syphon_control import SYPHON_CONTROL_KEY, SyphonControl
from servicebus_pair.core import Operations, PairSettings, bill
from servicebus_pair.core.events import SLOT_SECONDS, Route
from servicebus_pair.core.model import printable
from servicebus_pair.core.pricing import STANDARD_PRICES, idle_syphon_operations
from servicebus_pair.core.protocol import is_session_queue, queues_in_use
from servicebus_pair.ui.sources.airflow_queries import ACTIVE_STATES, Records, TaskActivity
from servicebus_pair.ui.sources.collector import PairStatus, PeekResult
from servicebus_pair.ui.sources.event_queries import ActionRecord
from servicebus_pair.ui.view.action_catalogue import ActionName, build_action_view
from servicebus_pair.ui.view.entity_view import build_entity_views
from servicebus_pair.ui.view.incident_view import build_incident_views, build_run_view
from servicebus_pair.ui.views import (
    ActionRecordView,
    BacklogView,
    CostView,
    DrainView,
    DriftView,
    NamespaceView,
    OtherSpoolView,
    PairView,
    QueueView,
    SendsView,
    SpoolView,
    SyphonView,
)

_SENDS_HOURS: Final = 6
_DAY: Final = timedelta(days=1)
_MAX_ACTION_RECORDS: Final = 20
_MAX_DRAINS: Final = 12
# For this long after a drain task's last update, a shrinking backlog may still be that task's work.
_RECENT_DRAIN_SECONDS: Final = 60.0
# A machine that is gone is shown no longer than its messages would be kept by default.
_SIGHTING_SECONDS: Final = 14 * 86_400.0
_OPERATION_KINDS: Final = frozenset(each.name for each in fields(Operations))


def build_pair_view(
    conn_id: str, settings: PairSettings | str, status: PairStatus | None, records: Records, *, now: float
) -> PairView:
    """Return the view of one pair.

    :param settings: or the error that prevents loading them.
    :param status: of its namespaces; ``None`` before the first one.
    :param now: seconds since the Unix epoch.
    """
    valid = settings if isinstance(settings, PairSettings) else None
    activities = records.activities.get(conn_id, ())
    state = records.states.get(conn_id, {})
    backlog = _backlog_view(valid, status, now)
    entities = build_entity_views(
        state,
        PeekResult() if status is None else status.peeked,
        activities,
        grace_seconds=0.0 if valid is None else valid.options.ping_primary_interval.total_seconds(),
    )
    healthy = {each.entity: (each.since, each.by) for each in entities if each.state == "healthy" and each.since}
    shrink_rate = 0.0 if status is None else _shrink_rate(status.counts)
    dags, has_state = records.dags.get(conn_id, ()), conn_id in records.asset_ids
    view = PairView(
        conn_id=conn_id,
        problem=None if valid is not None else str(settings),
        primary=_namespace_view(status, valid, "primary"),
        secondary=_namespace_view(status, valid, "secondary"),
        entities=entities,
        backlog=backlog,
        spool=_spool_view(status, state, now),
        syphon=_syphon_view(state, activities, backlog, shrink_rate=shrink_rate, now=now),
        sends=_sends_view(activities, now),
        cost=_cost_view(conn_id, valid, status, activities, records),
        incidents=build_incident_views(
            records.events.get(conn_id, ()),
            healthy,
            records.recoveries.get(conn_id, ()),
            waiting_since={} if status is None else status.peeked.waiting_since,
        ),
        action_log=[_action_record_view(each) for each in records.action_log.get(conn_id, ())[:_MAX_ACTION_RECORDS]],
        actions=[build_action_view(name, dags, has_state=has_state) for name in ActionName],
    )
    return view if has("task_state") else _without_counts(view)


def _without_counts(view: PairView) -> PairView:
    """Return a view in which nothing is known that tasks count in their state."""
    sent: dict[str, Any] = {"primary": None, "backlog": None, "spooled": None}
    drains = [replace(each, moved=None) for each in view.syphon.drains]
    return replace(
        view,
        entities=[replace(each, **sent, drained=None) for each in view.entities],
        sends=replace(view.sends, **sent),
        syphon=replace(view.syphon, drains=drains, moved=None),
        cost=replace(view.cost, total=None),
    )


def _spool_view(status: PairStatus | None, state: Mapping[str, Any], now: float) -> SpoolView:
    seen = SpoolView() if status is None else status.spool
    if not seen.configured:
        return seen
    others = sorted(parse_sightings(state.get(SPOOLS_KEY)).items(), key=lambda each: each[1].oldest_at)
    elsewhere = [
        OtherSpoolView(name=name, messages=each.messages, oldest_at=each.oldest_at, at=each.at)
        for name, each in others
        if name != seen.name and each.messages > 0 and now - each.at < _SIGHTING_SECONDS
    ]
    return replace(seen, elsewhere=elsewhere)


def _namespace_view(status: PairStatus | None, settings: PairSettings | None, side: str) -> NamespaceView:
    if status is not None:
        view: NamespaceView = getattr(status, side)
        return view
    return NamespaceView(name="?" if settings is None else getattr(settings, side).namespace)


def _action_record_view(record: ActionRecord) -> ActionRecordView:
    return ActionRecordView(
        action=str(record.extra.get("action", "")),
        user=record.user,
        reason=str(record.extra.get("reason", "")),
        at=record.at,
        run=None if record.run is None else build_run_view(record.run),
        detail=record.extra.get("detail") or {},
    )


def _backlog_view(settings: PairSettings | None, status: PairStatus | None, now: float) -> BacklogView:
    if settings is None or status is None:
        return BacklogView()
    queues = _queue_views(settings, status, now)
    plan, peeked = status.plan, status.peeked
    ages = [queue.oldest_seconds for queue in queues if queue.oldest_seconds is not None]
    return BacklogView(
        queues=queues,
        messages=sum(queue.active + queue.scheduled for queue in queues),
        dead_lettered=sum(queue.dead_lettered for queue in queues),
        size_bytes=sum(queue.size_bytes for queue in queues),
        oldest_seconds=max(ages, default=None),
        counted_at=status.counted_at,
        error=status.error,
        dead_letter_reasons=peeked.reasons,
        dead_letters=peeked.dead_letters,
        drift=() if plan is None else [DriftView(d.queue, d.field, d.expected, d.actual) for d in plan.drifted],
        extra=() if plan is None else plan.extra,
        missing=[queue.path for queue in queues if queue.state == "missing"],
    )


def _queue_views(settings: PairSettings, status: PairStatus, now: float) -> list[QueueView]:
    """Return the queues in use by index, those that require sessions last, then the extra ones."""
    if status.depths is None:
        return []
    in_use = queues_in_use(settings.primary.namespace, settings.options)
    depths = {depth.path.casefold(): depth for depth in status.depths}
    in_use_folded = {path.casefold() for path in in_use}
    extra = sorted(depth.path for folded, depth in depths.items() if folded not in in_use_folded)
    views = []
    for path in (*in_use, *extra):
        folded = path.casefold()
        depth = depths.get(folded)
        requires_session = is_session_queue(settings.primary.namespace, path)
        if depth is None:
            views.append(QueueView(path=path, state="missing", requires_session=requires_session))
            continue
        oldest = status.peeked.oldest.get(folded) if depth.active else None
        views.append(
            QueueView(
                path=depth.path,
                state="in use" if folded in in_use_folded else "extra",
                requires_session=requires_session,
                active=depth.active,
                scheduled=depth.scheduled,
                dead_lettered=depth.dead_lettered,
                size_bytes=depth.size_bytes,
                oldest_seconds=None if oldest is None else round(max(0.0, now - oldest), 1),
            )
        )
    return views


def _shrink_rate(counts: Sequence[tuple[float, int]]) -> float:
    """Return by how many messages a second the backlog shrank over the recent counts."""
    if len(counts) <= 1 or counts[-1][0] <= counts[0][0]:
        return 0.0
    (first_at, first), (last_at, last) = counts[0], counts[-1]
    return max(0.0, (first - last) / (last_at - first_at))


def _syphon_view(
    state: Mapping[str, Any],
    activities: Sequence[TaskActivity],
    backlog: BacklogView,
    *,
    shrink_rate: float,
    now: float,
) -> SyphonView:
    try:
        control = SyphonControl.from_json(state[SYPHON_CONTROL_KEY])
    except (KeyError, ValueError):
        control = SyphonControl()
    drains = sorted((_drain_view(task) for task in activities if task.drains), key=_active_first)
    active = [drain for drain in drains if drain.state in ACTIVE_STATES]
    active_runs = {(drain.dag_id, drain.run_id) for drain in active}
    per_second = sum(drain.per_second for drain in active if drain.state == "running")
    is_reported = bool(active) or any((drain.at or 0.0) > now - _RECENT_DRAIN_SECONDS for drain in drains)
    if not (is_reported and has("task_state")):
        per_second = shrink_rate
    remaining = None if backlog.counted_at is None else backlog.messages
    eta = remaining / per_second if remaining and per_second > 0 else None
    return SyphonView(
        paused=control.paused,
        rate=control.rate,
        by=printable(control.by),
        reason=printable(control.reason),
        at=control.at or None,
        rate_by=printable(control.rate_by),
        rate_reason=printable(control.rate_reason),
        drains=drains[: max(_MAX_DRAINS, len(active))],
        running=len(active),
        moved=sum(drain.moved or 0 for drain in drains if (drain.dag_id, drain.run_id) in active_runs),
        per_second=round(per_second, 1),
        remaining=remaining,
        eta_seconds=None if eta is None else round(eta, 1),
    )


def _drain_view(task: TaskActivity) -> DrainView:
    counters = task.counters
    return DrainView(
        dag_id=task.dag_id,
        run_id=task.run_id,
        task_id=task.task_id,
        map_index=task.map_index,
        state=task.state,
        moved=counters.get("syphoned", 0) + counters.get("unspooled", 0),
        dead_lettered=sum(counters.get("dead_lettered", {}).values()),
        per_second=counters.get("per_second", 0.0),
        at=counters.get("at"),
    )


def _active_first(drain: DrainView) -> tuple[bool, float]:
    """Sort key: active tasks first, then by last update, newest first."""
    return drain.state not in ACTIVE_STATES, -(drain.at or 0.0)


def _sends_view(activities: Iterable[TaskActivity], now: float) -> SendsView:
    first, last = (int(at // SLOT_SECONDS) for at in (now - _SENDS_HOURS * 3600, now))
    slots: dict[int, Counter[str]] = {}
    for activity in activities:
        # An earlier version counted two routes.
        for slot, *counts in activity.counters.get("sends", ()):
            if first <= slot <= last + 1:
                slots.setdefault(slot, Counter()).update(dict(zip(Route, counts, strict=False)))
    total = sum(slots.values(), Counter[str]())
    return SendsView(
        slot_seconds=SLOT_SECONDS,
        hours=_SENDS_HOURS,
        **{route.value: total[route] for route in Route},
        slots=[
            (slot * SLOT_SECONDS, counts[Route.PRIMARY], counts[Route.BACKLOG], counts[Route.SPOOLED])
            for slot, counts in sorted(slots.items())
        ],
    )


def _cost_view(
    conn_id: str,
    settings: PairSettings | None,
    status: PairStatus | None,
    activities: Iterable[TaskActivity],
    records: Records,
) -> CostView:
    counts: Counter[str] = Counter()
    for activity in activities:
        metered = activity.counters.get("operations", {})
        counts.update({kind: count for kind, count in metered.items() if kind in _OPERATION_KINDS})
    operations = Operations(**counts)
    billed = bill(operations)
    quiet_day = 0
    if settings is not None:
        queues = queues_in_use(settings.primary.namespace, settings.options)
        quiet_day = idle_syphon_operations(
            queues=len(queues), long_poll=settings.options.syphon_long_poll, period=_DAY
        ).total
    reported_at, report, reported_by = records.cost_reports.get(conn_id, (None, {}, None))
    return CostView(
        operations={kind: count for kind, count in counts.items() if count},
        total=operations.total,
        quiet_day=quiet_day,
        page=0 if status is None else status.operations,
        amount=str(billed.amount),
        currency=STANDARD_PRICES.currency,
        as_of=STANDARD_PRICES.as_of.isoformat(),
        report=report,
        reported_at=reported_at,
        reported_by=reported_by,
    )
