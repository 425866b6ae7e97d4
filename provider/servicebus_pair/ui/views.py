"""Values displayed by the page; the API serializes them to JSON field by field.

Times are seconds since the Unix epoch. ``None`` means unknown or not applicable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceView:
    """Reachability of one namespace from this API server.

    :param reachable: result of the last probe; ``None`` before the first one.
    :param latency_ms: round-trip time of that probe.
    :param error: why the namespace is unreachable.
    :param checked_at: time of the last probe.
    :param since: time of the last change between reachable and unreachable.
    """

    name: str
    reachable: bool | None = None
    latency_ms: float | None = None
    error: str | None = None
    checked_at: float | None = None
    since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityView:
    """Health of one entity.

    :param state: ``healthy``, ``suspect``, ``failed_over`` or ``failing_back`` as tasks shared it; ``unreadable`` if
        the stored value is invalid; ``diverted`` if no task reported a failover but messages for the entity arrive in
        the backlog, as with a Spark job; ``unknown`` without any data.
    :param by_hand: failed over by a person or a drill.
    :param held_until: a manual failover lasts at least until then, even if pings succeed.
    :param waiting: messages for this entity among those peeked in the backlog queues; a lower bound, since queues that
        require sessions are not peeked.
    :param primary: messages sent to the primary in the last day.
    :param backlog: messages diverted to the backlog in the last day.
    :param spooled: messages that went to the spool in the last day.
    :param drained: messages that tasks moved out of the backlog in the last day; these four are unknown before
        Airflow 3.3.
    """

    entity: str
    state: str
    since: float | None = None
    by: str = ""
    reason: str = ""
    by_hand: bool = False
    last_ping: float | None = None
    held_until: float | None = None
    waiting: int | None = None
    primary: int | None = 0
    backlog: int | None = 0
    spooled: int | None = 0
    drained: int | None = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One backlog queue.

    :param state: ``in use``, ``missing``, or ``extra`` if its index is beyond the configured number of queues, or it
        requires sessions and the pair keeps no session order.
    :param requires_session: it holds the messages of sessions, with ``ordering="session"``.
    :param oldest_seconds: age of the oldest message; unknown if the queue requires sessions.
    """

    path: str
    state: str
    requires_session: bool = False
    active: int = 0
    scheduled: int = 0
    dead_lettered: int = 0
    size_bytes: int = 0
    oldest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class DriftView:
    """A property of a backlog queue that differs from its expected description."""

    queue: str
    field: str
    expected: str
    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterView:
    """A dead-lettered message of a backlog queue.

    :param destination: entity that the message was addressed to.
    """

    queue: str
    message_id: str
    reason: str
    description: str
    destination: str | None
    at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogView:
    """Contents of the backlog queues.

    :param oldest_seconds: age of the oldest message in the queues without sessions.
    :param counted_at: time of the last successful count.
    :param error: why the last count failed; the other fields are then those of ``counted_at``.
    :param dead_letter_reasons: number of peeked dead letters by reason.
    :param dead_letters: the newest of the peeked dead letters.
    """

    queues: Sequence[QueueView] = ()
    messages: int = 0
    dead_lettered: int = 0
    size_bytes: int = 0
    oldest_seconds: float | None = None
    counted_at: float | None = None
    error: str | None = None
    dead_letter_reasons: Mapping[str, int] = field(default_factory=dict)
    dead_letters: Sequence[DeadLetterView] = ()
    drift: Sequence[DriftView] = ()
    extra: Sequence[str] = ()
    missing: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherSpoolView:
    """A spool that this API server does not see.

    :param name: an id, a machine and a folder.
    :param messages: how many it held at ``at``, when a task last looked.
    :param oldest_at: when the oldest of them was written.
    """

    name: str
    messages: int
    oldest_at: float
    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolView:
    """Contents of the spool, as this API server sees it.

    :param configured: the pair has a spool.
    :param messages: number of messages by entity, in lower case.
    :param size_bytes: what they take of ``limit_bytes``.
    :param oldest_at: when the oldest of them was written.
    :param error: why the spool cannot be read; the other fields are then those of the last time.
    :param name: by which tasks and the ledger know it.
    :param elsewhere: spools of other machines that hold messages.
    """

    configured: bool = False
    messages: Mapping[str, int] = field(default_factory=dict)
    size_bytes: int = 0
    limit_bytes: int = 0
    oldest_at: float | None = None
    error: str | None = None
    name: str | None = None
    elsewhere: Sequence[OtherSpoolView] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """A DAG run.

    :param report: its task says that a reconcile report exists at
        ``/api/pairs/{conn_id}/reports/{dag_id}/{run_id}``.
    :param reported: selected values that its task ``report`` returned, which nothing checked.
    :param lost: number of lost messages in the summary that the reconcile job wrote next to its report.
    :param verdict: the one in that summary: proven, lost or not proven.
    """

    dag_id: str
    run_id: str
    state: str
    report: bool = False
    reported: Mapping[str, Any] = field(default_factory=dict)
    lost: int | None = None
    verdict: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainView:
    """A task instance that drains the backlog, active or finished in the last day.

    :param state: of the task instance: ``running``, ``deferred``, ``success`` and so on.
    :param moved: messages that left the backlog or the spool, over all tries; unknown before Airflow 3.3.
    :param per_second: recent rate, messages a second.
    :param at: time of the last update.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    state: str
    moved: int | None = 0
    dead_lettered: int = 0
    per_second: float = 0.0
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonView:
    """Requested and actual state of the pair's syphon.

    :param rate: limit in messages a second; ``None`` for no limit.
    :param by: who last paused or resumed the syphon, with ``reason`` and ``at``; ``rate_by`` and ``rate_reason``
        belong to the rate.
    :param drains: active tasks first, then recent ones.
    :param running: number of active tasks.
    :param moved: messages moved by the runs with active tasks, including their finished tasks; unknown before Airflow
        3.3.
    :param per_second: rate of the active tasks; without any, and before Airflow 3.3, the rate at which the backlog
        shrinks, as when a Spark job drains it.
    :param remaining: messages in the backlog.
    :param eta_seconds: time until the backlog is empty at the current rate.
    """

    paused: bool = False
    rate: float | None = None
    by: str = ""
    reason: str = ""
    at: float | None = None
    rate_by: str = ""
    rate_reason: str = ""
    drains: Sequence[DrainView] = ()
    running: int = 0
    moved: int | None = 0
    per_second: float = 0.0
    remaining: int | None = None
    eta_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendsView:
    """Messages sent by tasks over the last hours, by route; unknown before Airflow 3.3.

    :param slots: ``[start, primary, backlog, spooled]`` in ascending order; slots without messages are omitted.
    """

    slot_seconds: int
    hours: int
    primary: int | None = 0
    backlog: int | None = 0
    spooled: int | None = 0
    slots: Sequence[tuple[float, int, int, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CostView:
    """Billed operations of the last 24 hours.

    :param operations: of tasks, by kind; work in the triggerer is not metered.
    :param total: sum of ``operations``; unknown before Airflow 3.3.
    :param quiet_day: receive operations that a continuous syphon takes in a day on empty queues.
    :param page: operations made by this page since it was first opened.
    :param amount: cost of ``total`` beyond the operations included in the base charge.
    :param as_of: date of the price list.
    :param report: totals of the last result of the cost task of the DAG ``reported_by``, returned at ``reported_at``.
    """

    operations: Mapping[str, int] = field(default_factory=dict)
    total: int | None = 0
    quiet_day: int = 0
    page: int = 0
    amount: str = "0.00"
    currency: str = ""
    as_of: str = ""
    report: Mapping[str, Any] = field(default_factory=dict)
    reported_at: float | None = None
    reported_by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentView:
    """A failover of one entity, from ``at`` to ``until``; ``until`` is ``None`` while it lasts.

    :param runs: the run that reported it, the runs that it triggered and the recoveries that moved its messages.
    :param end_reported: only the result or the state of a recovery says that it ended, which nothing checked.
    """

    entity: str
    at: float
    reason: str
    by: str
    until: float | None = None
    ended_by: str = ""
    runs: Sequence[RunView] = ()
    end_reported: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionRecordView:
    """An action that a user took on this page."""

    action: str
    user: str
    reason: str
    at: float
    run: RunView | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionView:
    """An action that the page offers.

    :param dag_id: DAG that the action triggers; ``None`` if it only changes state.
    :param problem: why the action is unavailable; ``None`` if it is available.
    """

    name: str
    dag_id: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """Everything that the page displays of one pair.

    :param problem: why its connection cannot be used.
    :param action_log: actions taken on this page, newest first.
    """

    conn_id: str
    problem: str | None
    primary: NamespaceView
    secondary: NamespaceView
    entities: Sequence[EntityView]
    backlog: BacklogView
    spool: SpoolView
    syphon: SyphonView
    sends: SendsView
    cost: CostView
    incidents: Sequence[IncidentView]
    action_log: Sequence[ActionRecordView]
    actions: Sequence[ActionView]
