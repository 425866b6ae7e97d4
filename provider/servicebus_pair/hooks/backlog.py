"""What the backlog holds, and when it is as somebody waits for it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.hooks.sharing import WatchedPair
from servicebus_pair.hooks.stats import tell_backlog

if TYPE_CHECKING:
    from servicebus_pair.core.administration import QueueDepth

__all__ = ["BacklogCondition", "Depth", "Until", "look_at_backlog"]


class Until(StrEnum):
    """What one waits for."""

    DRAINED = "drained"
    FILLED = "filled"


@dataclass(frozen=True, slots=True)
class Depth:
    """How much all backlog queues hold together.

    :param queues: those that hold messages.
    :param messages: in all of them; dead letters are not counted.
    :param oldest_seconds: the age of the oldest message; ``None`` when there is none, or nobody asked.
    """

    queues: int
    messages: int
    oldest_seconds: float | None = None

    @classmethod
    def total(cls, queues: Iterable[QueueDepth]) -> Depth:
        """Return what all these hold together."""
        holding = [queue.active for queue in queues if queue.active > 0]
        return cls(queues=len(holding), messages=sum(holding))

    def to_json(self) -> dict[str, Any]:
        """Return it as a small mapping."""
        return {"queues": self.queues, "messages": self.messages, "oldest_seconds": self.oldest_seconds}


@dataclass(frozen=True, slots=True, kw_only=True)
class BacklogCondition:
    """When a backlog is as somebody waits for it.

    :param until: ``drained``: it holds at most ``messages``, none of them older than ``age``;
        ``filled``: it holds at least ``messages`` (and at least one), or one that is as old as ``age``.
    :param messages: how many.
    :param age: in seconds; ``None`` when ages do not matter.
    :raises ConfigurationError: naming the parameter, its value and what is allowed.
    """

    until: Until
    messages: int
    age: float | None = None

    @classmethod
    def checked(cls, *, until: object, messages: object, age: object) -> BacklogCondition:
        """Return the condition that these parameters describe; ``age`` is a duration."""
        if not isinstance(until, str) or until not in tuple(Until):
            raise ConfigurationError(f"until is {until!r}: allowed are {', '.join(Until)}")
        if not isinstance(messages, int) or isinstance(messages, bool) or messages < 0:
            raise ConfigurationError(f"messages is {messages!r}: it must be a whole number of at least 0")
        if age is not None and (not isinstance(age, timedelta) or age <= timedelta(0)):
            raise ConfigurationError(f"age is {age!r}: it must be a timedelta above 0")
        return cls(until=Until(until), messages=messages, age=age.total_seconds() if age is not None else None)

    def holds(self, depth: Depth) -> bool:
        """Answer whether the backlog is so."""
        oldest = depth.oldest_seconds
        if self.until is Until.FILLED:
            return depth.messages >= max(1, self.messages) or (
                self.age is not None and oldest is not None and oldest >= self.age
            )
        return depth.messages <= self.messages and (self.age is None or oldest is None or oldest <= self.age)


async def look_at_backlog(watched: WatchedPair, *, conn_id: str, young: float, ages: bool) -> Depth:
    """Return what the backlog holds, as seen at most ``young`` seconds ago: a listing of the secondary.

    :param conn_id: the connection, for the metric of what was seen.
    :param ages: peek into the queues for the age of the oldest message, too.
    :raises ServiceError: the secondary cannot be reached, or the right to manage it is missing.
    """
    depth = Depth.total(await watched.depths(young=young))
    tell_backlog(conn_id, depth.messages)
    if not ages or depth.messages == 0:
        return depth
    survey = await watched.glimpse(young=young)
    now = time.time()
    oldest = max((each.ages(now)[1] for each in survey.destinations.values()), default=None)
    return Depth(depth.queues, depth.messages, oldest)
