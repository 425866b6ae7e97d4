"""The depth of the backlog, and conditions to wait for on it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from servicebus_pair.airflow_runtime.observers.metrics import set_backlog_gauge, set_spool_gauge
from servicebus_pair.airflow_runtime.waiting.pair_cache import SharedPair

if TYPE_CHECKING:
    from servicebus_pair.core.sdk import QueueDepth


class Until(StrEnum):
    """Which kind of condition to wait for."""

    DRAINED = "drained"
    FILLED = "filled"


@dataclass(frozen=True, slots=True)
class BacklogDepth:
    """What all backlog queues hold together, and the spool.

    :param queues: number of queues that hold messages.
    :param messages: number of active messages; dead letters are not counted.
    :param spooled: number of messages in the spool.
    :param oldest_seconds: age of the oldest message; ``None`` when there is none, or when ages were not read.
    """

    queues: int
    messages: int
    oldest_seconds: float | None = None
    spooled: int = 0

    @property
    def total_messages(self) -> int:
        """Number of messages in the queues and in the spool."""
        return self.messages + self.spooled

    @classmethod
    def of(cls, queues: Iterable[QueueDepth]) -> BacklogDepth:
        """Return the sum of these queues."""
        counts = [queue.active for queue in queues if queue.active > 0]
        return cls(queues=len(counts), messages=sum(counts))

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogCondition:
    """A condition on the depth of the backlog; messages in the spool count.

    :param until: ``drained``: at most ``messages`` are left, none older than ``age``; ``filled``: at least
        ``messages`` (and at least one) wait, or the oldest has reached ``age``.
    :param messages: threshold in messages.
    :param age: threshold in seconds; ``None`` to ignore ages.
    """

    until: Until
    messages: int
    age: float | None = None

    def is_met_by(self, depth: BacklogDepth) -> bool:
        """Return whether a backlog of this depth meets the condition."""
        oldest = depth.oldest_seconds
        if self.until is Until.FILLED:
            return depth.total_messages >= max(1, self.messages) or (
                self.age is not None and oldest is not None and oldest >= self.age
            )
        return depth.total_messages <= self.messages and (self.age is None or oldest is None or oldest <= self.age)


async def read_backlog_depth(shared: SharedPair, *, conn_id: str, max_age: float, with_ages: bool) -> BacklogDepth:
    """Read the depth of the backlog: one listing of the secondary's queues, and one of the spool.

    :param conn_id: tag of the metric that is published.
    :param max_age: use a shared reading that is at most this many seconds old.
    :param with_ages: also peek into the queues for the age of the oldest message.
    :raises ServiceError: the secondary cannot be reached, or the Manage right is missing.
    :raises SpoolError: the spool cannot be read.
    """
    spooled = await shared.spooled(max_age=max_age)
    depth = BacklogDepth.of(await shared.queue_depths(max_age=max_age))
    depth = replace(depth, spooled=sum(each.messages for each in spooled.values()))
    set_backlog_gauge(conn_id, depth.messages)
    if shared.has_spool:
        set_spool_gauge(conn_id, depth.spooled)
    if not with_ages or depth.total_messages == 0:
        return depth
    survey = await shared.first_page(max_age=max_age)
    now = time.time()
    ages = [each.ages(now)[1] for each in survey.destinations.values()]
    ages += [now - each.oldest_at for each in spooled.values()]
    return replace(depth, oldest_seconds=max(ages, default=None))
