"""Backlog queues: names, description, the plan of provisioning, and drift (SPEC section 3). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Final

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.results import Drift

__all__ = [
    "BACKLOG_QUEUE",
    "MAX_TIME_SPAN",
    "BacklogPlan",
    "QueueShape",
    "backlog_prefix",
    "backlog_queue",
    "backlog_queues",
    "cleanup_targets",
    "plan_backlog",
]

# .NET's TimeSpan.MaxValue; a timedelta cannot hold it exactly and the service rejects its rounding.
MAX_TIME_SPAN: Final = "P10675199DT2H48M5.4775807S"
_MAX_INT32: Final = 2_147_483_647
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_INDEX: Final = re.compile(r"0|[1-9][0-9]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueShape:
    """The properties of a queue that provisioning sets and compares; durations in ISO 8601.

    The status is not part of SPEC's table: a queue that is not ``Active`` takes or gives no messages, so that
    too is drift worth a report.
    """

    max_size_in_megabytes: int
    max_delivery_count: int
    default_message_time_to_live: str
    auto_delete_on_idle: str
    lock_duration: str
    dead_lettering_on_message_expiration: bool
    enable_batched_operations: bool
    status: str


BACKLOG_QUEUE: Final = QueueShape(
    max_size_in_megabytes=5120,
    max_delivery_count=_MAX_INT32,
    default_message_time_to_live=MAX_TIME_SPAN,
    auto_delete_on_idle=MAX_TIME_SPAN,
    lock_duration="PT1M",
    dead_lettering_on_message_expiration=True,
    enable_batched_operations=True,
    status="Active",
)


@dataclass(frozen=True, slots=True)
class BacklogPlan:
    """What provisioning would do: the same value for a dry run and for the action."""

    found: tuple[str, ...]
    create: tuple[str, ...]
    drifted: tuple[Drift, ...]
    extra: tuple[str, ...]


def backlog_prefix(namespace: str) -> str:
    """Answer what the path of every backlog queue of a primary namespace begins with.

    :raises ConfigurationError: not the name of a namespace.
    """
    if _NAMESPACE.fullmatch(namespace) is None:
        raise ConfigurationError(f"primary namespace is {namespace!r}: allowed are letters, digits and hyphens")
    return f"{namespace}/x-servicebus-transfer/"


def backlog_queue(namespace: str, index: int) -> str:
    """Answer the path of one backlog queue."""
    return f"{backlog_prefix(namespace)}{index}"


def backlog_queues(namespace: str, count: int) -> tuple[str, ...]:
    """Answer the paths of all backlog queues in use, by index."""
    return tuple(backlog_queue(namespace, index) for index in range(count))


def plan_backlog(namespace: str, count: int, actual: Mapping[str, QueueShape]) -> BacklogPlan:
    """Compare what should be with what is.

    :param actual: queues that exist on the secondary, by path; others than backlog queues are ignored.
    """
    prefix = backlog_prefix(namespace).casefold()
    wanted = backlog_queues(namespace, count)
    existing = {path.casefold(): (path, shape) for path, shape in actual.items()}
    found = tuple(path for path in wanted if path.casefold() in existing)
    known = {path.casefold() for path in wanted}
    extra = tuple(
        path for folded, (path, _) in sorted(existing.items()) if _is_backlog(folded, prefix) and folded not in known
    )
    drifted = tuple(drift for path in found for drift in _drift(path, existing[path.casefold()][1]))
    create = tuple(path for path in wanted if path.casefold() not in existing)
    return BacklogPlan(found=found, create=create, drifted=drifted, extra=extra)


def cleanup_targets(namespace: str, count: int, actual: Iterable[str], *, everything: bool) -> tuple[str, ...]:
    """Answer which backlog queues a cleanup would delete, if they are empty.

    :param actual: paths that exist on the secondary; others than backlog queues of ``namespace`` are never touched.
    :param everything: all backlog queues; else only those beyond ``count``.
    """
    prefix = backlog_prefix(namespace).casefold()
    kept = frozenset() if everything else {path.casefold() for path in backlog_queues(namespace, count)}
    return tuple(
        path for path in sorted(actual) if _is_backlog(folded := path.casefold(), prefix) and folded not in kept
    )


def _is_backlog(folded: str, prefix: str) -> bool:
    """Whether a path is one that :func:`backlog_queue` gives: another name may be anybody's queue."""
    return folded.startswith(prefix) and _INDEX.fullmatch(folded.removeprefix(prefix)) is not None


def _drift(path: str, actual: QueueShape) -> tuple[Drift, ...]:
    return tuple(
        Drift(path, field.name, str(expected), str(found))
        for field in fields(QueueShape)
        if (expected := getattr(BACKLOG_QUEUE, field.name)) != (found := getattr(actual, field.name))
    )
