"""Puts together what is shown of a pair, from what the namespaces and the database said. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any, Final

from servicebus_pair.core.backlog import backlog_queues
from servicebus_pair.core.configuration import PairSettings
from servicebus_pair.core.costs import STANDARD_PRICES, Operations, bill, idle_syphon
from servicebus_pair.core.events import SLOT_SECONDS
from servicebus_pair.hooks.steering import SYPHON_CONTROL_KEY, SyphonControl
from servicebus_pair.ui.actions import views_of_actions
from servicebus_pair.ui.entities import entities_of
from servicebus_pair.ui.incidents import incidents_of, run_view
from servicebus_pair.ui.looking import Look, Peeked
from servicebus_pair.ui.records import Note, Records
from servicebus_pair.ui.snapshot import (
    BacklogView,
    CostView,
    DeedView,
    DrainView,
    DriftView,
    NamespaceView,
    PairView,
    QueueView,
    SendsView,
    SyphonView,
)

__all__ = ["build_pair"]

_HOURS: Final = 6
_DAY: Final = timedelta(days=1)
_SHOWN_DEEDS: Final = 20
_SHOWN_DRAINS: Final = 12
# So long after a task has told of its drain, what the backlog shrinks by may be its work.
_LATELY_SECONDS: Final = 60.0
_RUNNING: Final = ("queued", "scheduled", "running", "deferred", "up_for_retry", "restarting")
_OPERATIONS: Final = frozenset(each.name for each in fields(Operations))


def build_pair(
    conn_id: str, settings: PairSettings | str, look: Look | None, records: Records, *, now: float
) -> PairView:
    """Return what is shown of one pair.

    :param settings: or why they cannot be read.
    :param look: the last answers of its namespaces, if there were any.
    :param now: seconds since the Unix epoch.
    """
    known = settings if isinstance(settings, PairSettings) else None
    notes = records.notes.get(conn_id, ())
    state = records.states.get(conn_id, {})
    backlog = _backlog(known, look, now)
    entities = entities_of(
        state,
        Peeked() if look is None else look.peeked,
        notes,
        grace=0.0 if known is None else known.options.ping_primary_interval.total_seconds(),
    )
    well = {each.entity: (each.since, each.by) for each in entities if each.state == "healthy" and each.since}
    return PairView(
        conn_id=conn_id,
        problem=None if known is not None else str(settings),
        primary=_namespace(look, known, "primary"),
        secondary=_namespace(look, known, "secondary"),
        entities=entities,
        backlog=backlog,
        syphon=_syphon(state, notes, backlog, shrinks=0.0 if look is None else _shrinks(look.counts), now=now),
        sends=_sends(notes, now),
        cost=_cost(conn_id, known, look, notes, records),
        incidents=incidents_of(records.events.get(conn_id, ()), well, records.recoveries.get(conn_id, ())),
        deeds=[
            DeedView(
                action=str(deed.extra.get("action", "")),
                user=deed.user,
                reason=str(deed.extra.get("reason", "")),
                at=deed.at,
                run=None if deed.run is None else run_view(deed.run),
                detail=deed.extra.get("detail") or {},
            )
            for deed in records.deeds.get(conn_id, ())[:_SHOWN_DEEDS]
        ],
        actions=views_of_actions(records.dags.get(conn_id, ()), has_state=conn_id in records.asset_ids),
    )


def _namespace(look: Look | None, settings: PairSettings | None, side: str) -> NamespaceView:
    if look is not None:
        view: NamespaceView = getattr(look, side)
        return view
    return NamespaceView(name="?" if settings is None else getattr(settings, side).namespace)


def _backlog(settings: PairSettings | None, look: Look | None, now: float) -> BacklogView:
    if settings is None or look is None:
        return BacklogView()
    queues = _queues(settings, look, now)
    plan, peeked = look.plan, look.peeked
    ages = [queue.oldest_seconds for queue in queues if queue.oldest_seconds is not None]
    return BacklogView(
        queues=queues,
        messages=sum(queue.active + queue.scheduled for queue in queues),
        dead_lettered=sum(queue.dead_lettered for queue in queues),
        size_bytes=sum(queue.size_bytes for queue in queues),
        oldest_seconds=max(ages, default=None),
        counted_at=look.counted_at,
        error=look.error,
        dead_letter_reasons=peeked.reasons,
        dead_letters=peeked.dead_letters,
        drift=() if plan is None else [DriftView(d.queue, d.field, d.expected, d.actual) for d in plan.drifted],
        extra=() if plan is None else plan.extra,
        missing=[queue.path for queue in queues if queue.state == "missing"],
    )


def _queues(settings: PairSettings, look: Look, now: float) -> list[QueueView]:
    """Those in use by index, then those beyond."""
    if look.depths is None:
        return []
    wanted = backlog_queues(settings.primary.namespace, settings.options.backlog_queue_count)
    there = {depth.path.casefold(): depth for depth in look.depths}
    used = {path.casefold() for path in wanted}
    views = []
    for path in (*wanted, *sorted(depth.path for folded, depth in there.items() if folded not in used)):
        folded = path.casefold()
        depth = there.get(folded)
        if depth is None:
            views.append(QueueView(path=path, state="missing"))
            continue
        oldest = look.peeked.oldest.get(folded) if depth.active else None
        views.append(
            QueueView(
                path=depth.path,
                state="in use" if folded in used else "extra",
                active=depth.active,
                scheduled=depth.scheduled,
                dead_lettered=depth.dead_lettered,
                size_bytes=depth.size_bytes,
                oldest_seconds=None if oldest is None else round(max(0.0, now - oldest), 1),
            )
        )
    return views


def _shrinks(counts: Sequence[tuple[float, int]]) -> float:
    """By how many messages a second the backlog became smaller lately."""
    if len(counts) <= 1 or counts[-1][0] <= counts[0][0]:
        return 0.0
    (began, before), (ended, after) = counts[0], counts[-1]
    return max(0.0, (before - after) / (ended - began))


def _syphon(
    state: Mapping[str, Any], notes: Sequence[Note], backlog: BacklogView, *, shrinks: float, now: float
) -> SyphonView:
    try:
        control = SyphonControl.from_json(state[SYPHON_CONTROL_KEY])
    except (KeyError, ValueError):
        control = SyphonControl()
    drains = sorted((_drain(note) for note in notes if note.drains), key=_order)
    running = [drain for drain in drains if drain.state in _RUNNING]
    at_work = {(drain.dag_id, drain.run_id) for drain in running}
    per_second = sum(drain.per_second for drain in running if drain.state == "running")
    if not any(drain.state in _RUNNING or (drain.at or 0.0) > now - _LATELY_SECONDS for drain in drains):
        per_second = shrinks
    remaining = None if backlog.counted_at is None else backlog.messages
    eta = remaining / per_second if remaining and per_second > 0 else None
    return SyphonView(
        paused=control.paused,
        rate=control.rate,
        by=control.by,
        reason=control.reason,
        at=control.at or None,
        rate_by=control.rate_by,
        rate_reason=control.rate_reason,
        drains=drains[: max(_SHOWN_DRAINS, len(running))],
        running=len(running),
        moved=sum(drain.moved for drain in drains if (drain.dag_id, drain.run_id) in at_work),
        per_second=round(per_second, 1),
        remaining=remaining,
        eta_seconds=None if eta is None else round(eta, 1),
    )


def _drain(note: Note) -> DrainView:
    told = note.notes
    return DrainView(
        dag_id=note.dag_id,
        run_id=note.run_id,
        task_id=note.task_id,
        map_index=note.map_index,
        state=note.state,
        moved=told.get("syphoned", 0),
        dead_lettered=sum(told.get("dead_lettered", {}).values()),
        per_second=told.get("per_second", 0.0),
        at=told.get("at"),
    )


def _order(drain: DrainView) -> tuple[bool, float]:
    """Those at work first, then the latest."""
    return drain.state not in _RUNNING, -(drain.at or 0.0)


def _sends(notes: Iterable[Note], now: float) -> SendsView:
    first = int((now - _HOURS * 3600) // SLOT_SECONDS)
    slots: dict[int, tuple[int, int]] = {}
    for note in notes:
        for slot, primary, backlog in note.notes.get("sends", ()):
            if slot >= first:
                before = slots.get(slot, (0, 0))
                slots[slot] = (before[0] + primary, before[1] + backlog)
    return SendsView(
        slot_seconds=SLOT_SECONDS,
        hours=_HOURS,
        primary=sum(primary for primary, _ in slots.values()),
        backlog=sum(backlog for _, backlog in slots.values()),
        slots=[(slot * SLOT_SECONDS, *counts) for slot, counts in sorted(slots.items())],
    )


def _cost(
    conn_id: str, settings: PairSettings | None, look: Look | None, notes: Iterable[Note], records: Records
) -> CostView:
    counts: Counter[str] = Counter()
    for note in notes:
        counts.update({name: n for name, n in note.notes.get("operations", {}).items() if name in _OPERATIONS})
    operations = Operations(**counts)
    priced = bill(operations)
    quiet = 0
    if settings is not None:
        options = settings.options
        quiet = idle_syphon(queues=options.backlog_queue_count, long_poll=options.syphon_long_poll, period=_DAY).total
    reported_at, report = records.costs.get(conn_id, (None, {}))
    return CostView(
        operations={name: n for name, n in counts.items() if n},
        total=operations.total,
        quiet_day=quiet,
        page=0 if look is None else look.operations,
        amount=str(priced.amount),
        currency=STANDARD_PRICES.currency,
        as_of=STANDARD_PRICES.as_of.isoformat(),
        report=report,
        reported_at=reported_at,
    )
