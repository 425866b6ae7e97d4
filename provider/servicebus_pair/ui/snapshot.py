"""What the page shows, as values; the JSON of the API is these, field by field.

Times are seconds since the Unix epoch; ``None`` stands for what is not known or does not apply.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "ActionView",
    "BacklogView",
    "CostView",
    "DeadLetterView",
    "DeedView",
    "DrainView",
    "DriftView",
    "EntityView",
    "IncidentView",
    "NamespaceView",
    "PairView",
    "QueueView",
    "RunView",
    "SendsView",
    "SyphonView",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceView:
    """One namespace, as this API server reaches it.

    :param reachable: whether it answered the last greeting; ``None`` before the first one.
    :param latency_ms: of that greeting: one round trip.
    :param error: why not.
    :param checked_at: when it was last asked.
    :param since: since when it is as it is.
    """

    name: str
    reachable: bool | None = None
    latency_ms: float | None = None
    error: str | None = None
    checked_at: float | None = None
    since: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityView:
    """The health of one entity, as tasks shared it.

    :param state: ``healthy``, ``suspect``, ``failed_over``, ``unreadable``; ``diverted``: nobody told of a failover,
        and its messages arrive in the backlog, as those of a Spark job do; ``unknown`` while nothing tells.
    :param by_hand: it is failed over, and by a person or a drill.
    :param held_until: until when no ping ends a failover by hand.
    :param waiting: its messages among the oldest of each backlog queue: at least so many wait.
    :param primary: messages sent to it in the last day by the direct way.
    :param backlog: and by way of the backlog.
    :param home: messages for it that tasks have moved out of the backlog in the last day.
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
    primary: int = 0
    backlog: int = 0
    home: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueView:
    """One backlog queue.

    :param state: ``in use``, ``missing``, or ``extra``: beyond the number in use.
    :param oldest_seconds: the age of its oldest message.
    """

    path: str
    state: str
    active: int = 0
    scheduled: int = 0
    dead_lettered: int = 0
    size_bytes: int = 0
    oldest_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class DriftView:
    """A field of a backlog queue that differs from its description."""

    queue: str
    field: str
    expected: str
    actual: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterView:
    """A dead letter of a backlog queue.

    :param destination: the entity that it was meant for.
    """

    queue: str
    message_id: str
    reason: str
    description: str
    destination: str | None
    at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogView:
    """What the backlog queues hold, or why that is not known.

    :param counted_at: when they were last counted; what is shown is as old as that.
    :param dead_letter_reasons: of the dead letters that were looked at, how many by reason.
    :param dead_letters: some of them.
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
class RunView:
    """A run of a DAG.

    :param report: it has a reconcile report, which ``/api/pairs/{conn_id}/reports/{dag_id}/{run_id}`` shows.
    :param result: what its task ``report`` returned, in short.
    """

    dag_id: str
    run_id: str
    state: str
    report: bool = False
    result: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainView:
    """A task that moves messages out of the backlog, now or until just now.

    :param state: of the task: ``running``, ``deferred``, ``success`` and so on.
    :param moved: messages that the primary has confirmed, over all its tries.
    :param per_second: messages a second lately.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    state: str
    moved: int = 0
    dead_lettered: int = 0
    per_second: float = 0.0
    at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SyphonView:
    """The syphon of the pair: what is wanted of it, and what it does.

    :param rate: most messages a second; ``None`` for no limit.
    :param by: who said last whether to pause, why, and when; ``rate_by`` and ``rate_reason`` are of the rate.
    :param drains: tasks at work, then those that were lately.
    :param moved: by the runs at work, by their tasks that have ended too.
    :param per_second: as these tasks moved lately; with none at work, by how much the backlog shrinks, as when a
        Spark job drains it.
    :param remaining: messages in the backlog.
    :param eta_seconds: until they are moved, as fast as lately.
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
    moved: int = 0
    per_second: float = 0.0
    remaining: int | None = None
    eta_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SendsView:
    """Messages sent over the last hours, by route, as tasks noted them.

    :param slots: ``[start, primary, backlog]``, ascending; slots without messages are left out.
    """

    slot_seconds: int
    hours: int
    primary: int = 0
    backlog: int = 0
    slots: Sequence[tuple[float, int, int]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CostView:
    """Operations of the last 24 hours against the plan of a quiet day.

    :param operations: by kind, of tasks: what waits in the triggerer is not metered.
    :param page: operations of this page, since somebody began to look.
    :param quiet_day: of a continuous syphon over empty queues, in a day: receives.
    :param amount: what ``total`` costs beyond what the base charge includes, had the month no others.
    :param report: what the cost DAG reported last.
    """

    operations: Mapping[str, int] = field(default_factory=dict)
    total: int = 0
    quiet_day: int = 0
    page: int = 0
    amount: str = "0.00"
    currency: str = ""
    as_of: str = ""
    report: Mapping[str, Any] = field(default_factory=dict)
    reported_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class IncidentView:
    """A failover of an entity, with its end if it has ended.

    :param runs: the run that found it, and those that it started.
    """

    entity: str
    at: float
    reason: str
    by: str
    until: float | None = None
    ended_by: str = ""
    runs: Sequence[RunView] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeedView:
    """What somebody did on this page."""

    action: str
    user: str
    reason: str
    at: float
    run: RunView | None = None
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionView:
    """What can be done with a pair.

    :param dag_id: the DAG that does it; ``None`` for a change of state.
    :param problem: why it cannot be done now; ``None`` when it can.
    """

    name: str
    dag_id: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PairView:
    """One pair.

    :param problem: why its connection cannot be used.
    """

    conn_id: str
    problem: str | None
    primary: NamespaceView
    secondary: NamespaceView
    entities: Sequence[EntityView]
    backlog: BacklogView
    syphon: SyphonView
    sends: SendsView
    cost: CostView
    incidents: Sequence[IncidentView]
    deeds: Sequence[DeedView]
    actions: Sequence[ActionView]
