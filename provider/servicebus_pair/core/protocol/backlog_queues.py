"""Names and settings of backlog queues, the provisioning plan, and drift (SPEC section 3). Pure."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Final

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.results import Drift

__all__ = [
    "BACKLOG_QUEUE",
    "MAX_TIME_SPAN",
    "BacklogPlan",
    "QueueSettings",
    "backlog_prefix",
    "backlog_queue",
    "backlog_queue_paths",
    "backlog_session_id",
    "cleanup_targets",
    "plan_backlog",
    "session_prefix",
    "session_queue_for",
    "session_queue_paths",
]

# .NET's TimeSpan.MaxValue; a timedelta rounds it up, which the service rejects.
MAX_TIME_SPAN: Final = "P10675199DT2H48M5.4775807S"
_MAX_INT32: Final = 2_147_483_647
_NAMESPACE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_INDEX: Final = re.compile(r"0|[1-9][0-9]*")
# The longest session id that the service accepts.
_MAX_SESSION_ID: Final = 128


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The queue properties that provisioning sets and compares; durations in ISO 8601.

    ``status`` is not in SPEC's table, but a queue that is not ``Active`` does not accept or deliver messages, so it is
    reported as drift, too.
    """

    max_size_in_megabytes: int
    max_delivery_count: int
    default_message_time_to_live: str
    auto_delete_on_idle: str
    lock_duration: str
    dead_lettering_on_message_expiration: bool
    enable_batched_operations: bool
    status: str


BACKLOG_QUEUE: Final = QueueSettings(
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
    """What provisioning will do; used by both the dry run and the real run."""

    found: tuple[str, ...]
    create: tuple[str, ...]
    drifted: tuple[Drift, ...]
    extra: tuple[str, ...]


def backlog_prefix(namespace: str) -> str:
    """Return the common prefix of the backlog queue paths of a primary namespace.

    :raises ConfigurationError: ``namespace`` is not the name of a namespace.
    """
    if _NAMESPACE.fullmatch(namespace) is None:
        raise ConfigurationError(f"primary namespace is {namespace!r}: allowed are letters, digits and hyphens")
    return f"{namespace}/x-servicebus-transfer/"


def backlog_queue(namespace: str, index: int) -> str:
    """Return the path of one backlog queue."""
    return f"{backlog_prefix(namespace)}{index}"


def backlog_queue_paths(namespace: str, count: int) -> tuple[str, ...]:
    """Return the paths of the backlog queues in use, by index."""
    return tuple(backlog_queue(namespace, index) for index in range(count))


def session_prefix(namespace: str) -> str:
    """Return the common prefix of the backlog queues that require sessions, used with ``ordering="session"``.

    :raises ConfigurationError: ``namespace`` is not the name of a namespace.
    """
    return f"{backlog_prefix(namespace).removesuffix('/')}-sessions/"


def session_queue_paths(namespace: str, count: int) -> tuple[str, ...]:
    """Return the paths of the backlog queues that require sessions, by index."""
    prefix = session_prefix(namespace)
    return tuple(f"{prefix}{index}" for index in range(count))


def session_queue_for(entity: str, session: str, queues: Sequence[str]) -> str:
    """Return the queue among ``queues`` that keeps the messages of one session of ``entity`` in order.

    Every process that shares the backlog must pass the same queues in the same order.
    """
    return queues[zlib.crc32(f"{entity.casefold()}\0{session}".encode()) % len(queues)]


def backlog_session_id(entity: str) -> str:
    """Return the session id of all messages for ``entity`` in one backlog queue that requires sessions.

    The queue depends on the session of the message, the session id on its entity only: so there is one session per
    entity in each queue, and whether the backlog of an entity is empty can be asked without knowing its sessions.
    A path that is longer than a session id may be is shortened with its digest.
    """
    folded = entity.casefold()
    if len(folded) <= _MAX_SESSION_ID:
        return folded
    digest = hashlib.sha256(folded.encode()).hexdigest()
    return f"{folded[: _MAX_SESSION_ID - len(digest) - 1]}-{digest}"


def plan_backlog(namespace: str, count: int, actual: Mapping[str, QueueSettings]) -> BacklogPlan:
    """Compare the expected backlog queues with the existing ones.

    :param actual: queues that exist on the secondary, by path; queues that are not backlog queues are ignored.
    """
    prefix = backlog_prefix(namespace).casefold()
    wanted = backlog_queue_paths(namespace, count)
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
    """Return the backlog queues that a cleanup deletes if they are empty.

    :param actual: queue paths that exist on the secondary; only backlog queues of ``namespace`` are returned.
    :param everything: include all backlog queues, not only those with an index beyond ``count``.
    """
    prefix = backlog_prefix(namespace).casefold()
    kept = frozenset() if everything else {path.casefold() for path in backlog_queue_paths(namespace, count)}
    return tuple(
        path for path in sorted(actual) if _is_backlog(folded := path.casefold(), prefix) and folded not in kept
    )


def _is_backlog(folded: str, prefix: str) -> bool:
    """Return whether :func:`backlog_queue` could have made this path; any other queue is not ours."""
    return folded.startswith(prefix) and _INDEX.fullmatch(folded.removeprefix(prefix)) is not None


def _drift(path: str, actual: QueueSettings) -> tuple[Drift, ...]:
    return tuple(
        Drift(path, field.name, str(expected), str(found))
        for field in fields(QueueSettings)
        if (expected := getattr(BACKLOG_QUEUE, field.name)) != (found := getattr(actual, field.name))
    )
