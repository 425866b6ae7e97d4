"""Names and settings of backlog queues, the provisioning plan, and drift (SPEC section 3). Pure."""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Final

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.options import PairOptions
from servicebus_pair.core.model.results import Drift

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
    requires_session: bool
    status: str


BACKLOG_QUEUE: Final = QueueSettings(
    max_size_in_megabytes=5120,
    max_delivery_count=_MAX_INT32,
    default_message_time_to_live=MAX_TIME_SPAN,
    auto_delete_on_idle=MAX_TIME_SPAN,
    lock_duration="PT1M",
    dead_lettering_on_message_expiration=True,
    enable_batched_operations=True,
    requires_session=False,
    status="Active",
)
SESSION_QUEUE: Final = replace(BACKLOG_QUEUE, requires_session=True)
_REQUIRES_SESSION: Final = "requires_session"


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


def backlog_prefixes(namespace: str) -> tuple[str, str]:
    """Return the prefixes, casefolded, of all backlog queue paths of a primary namespace: ordinary and session queues.

    :raises ConfigurationError: ``namespace`` is not the name of a namespace.
    """
    return backlog_prefix(namespace).casefold(), session_prefix(namespace).casefold()


def is_session_queue(namespace: str, path: str) -> bool:
    """Return whether a backlog queue of a primary namespace is one that requires sessions, by its path."""
    return path.casefold().startswith(session_prefix(namespace).casefold())


def queues_in_use(namespace: str, options: PairOptions) -> tuple[str, ...]:
    """Return the paths of all backlog queues that a pair uses: with ``ordering="session"`` the session queues last."""
    return tuple(_expected(namespace, options.backlog_queue_count, ordered=options.ordering == "session"))


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


def entity_of_session(session_id: str) -> str | None:
    """Return the casefolded entity that a session id of :func:`backlog_session_id` names; ``None`` if it was shortened.

    A path of exactly the maximum length cannot be told from a shortened one.
    """
    return session_id if len(session_id) < _MAX_SESSION_ID else None


def plan_backlog(
    namespace: str, count: int, actual: Mapping[str, QueueSettings], *, ordered: bool = False
) -> BacklogPlan:
    """Compare the expected backlog queues with the existing ones.

    :param actual: queues that exist on the secondary, by path; queues that are not backlog queues are ignored.
    :param ordered: expect session queues, too; otherwise existing ones are extra.
    """
    expected = _expected(namespace, count, ordered=ordered)
    existing = {path.casefold(): (path, shape) for path, shape in actual.items()}
    found = tuple(path for path in expected if path.casefold() in existing)
    known = {path.casefold() for path in expected}
    extra = tuple(
        path for folded, (path, _) in sorted(existing.items()) if _is_backlog(namespace, folded) and folded not in known
    )
    drifted = tuple(drift for path in found for drift in _drift(path, expected[path], existing[path.casefold()][1]))
    create = tuple(path for path in expected if path.casefold() not in existing)
    return BacklogPlan(found=found, create=create, drifted=drifted, extra=extra)


def unusable_queues(plan: BacklogPlan) -> dict[str, str]:
    """Return the existing queues that cannot be used, with what to do.

    A queue that requires sessions refuses messages without one, and one that does not keeps no order; neither can be
    changed after its creation.
    """
    return {
        drift.queue: f"RequiresSession is {drift.actual}, must be {drift.expected} and cannot be changed: "
        "drain the queue, delete it and provision again; until then sends to it fail"
        for drift in plan.drifted
        if drift.field == _REQUIRES_SESSION
    }


def cleanup_targets(
    namespace: str, count: int, actual: Iterable[str], *, everything: bool, ordered: bool = False
) -> tuple[str, ...]:
    """Return the backlog queues that a cleanup deletes if they are empty.

    :param actual: queue paths that exist on the secondary; only backlog queues of ``namespace`` are returned.
    :param everything: include all backlog queues, not only those with an index beyond ``count``.
    :param ordered: session queues with an index below ``count`` are in use, too.
    """
    in_use = () if everything else _expected(namespace, count, ordered=ordered)
    kept = {path.casefold() for path in in_use}
    return tuple(
        path for path in sorted(actual) if _is_backlog(namespace, folded := path.casefold()) and folded not in kept
    )


def _expected(namespace: str, count: int, *, ordered: bool) -> dict[str, QueueSettings]:
    """Return the settings of the backlog queues in use, by path."""
    sessions = session_queue_paths(namespace, count) if ordered else ()
    return dict.fromkeys(backlog_queue_paths(namespace, count), BACKLOG_QUEUE) | dict.fromkeys(sessions, SESSION_QUEUE)


def _is_backlog(namespace: str, folded: str) -> bool:
    """Return whether provisioning could have made this path; any other queue is not ours."""
    return any(
        folded.startswith(prefix) and _INDEX.fullmatch(folded.removeprefix(prefix)) is not None
        for prefix in backlog_prefixes(namespace)
    )


def _drift(path: str, expected: QueueSettings, actual: QueueSettings) -> tuple[Drift, ...]:
    return tuple(
        Drift(path, field.name, str(wanted), str(found))
        for field in fields(QueueSettings)
        if (wanted := getattr(expected, field.name)) != (found := getattr(actual, field.name))
    )
