"""What an operation set in motion beyond its own answer, for whoever drives the broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from servicebus_emulator.engine.sessions import SessionHold

__all__ = ["Effects", "Happened", "Timed"]


class Timed(Protocol):
    """Something in which things happen by themselves as time passes."""

    def __hash__(self) -> int: ...

    def next_due(self) -> int | None:
        """Return when :meth:`advance` next has something to do (milliseconds since 1970), or None."""
        ...

    def advance(self) -> None:
        """Do what has fallen due."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Happened:
    """Effects since they were last taken.

    :ivar changed: queues and topics that were touched: receivers may be waiting for what they hold now.
    :ivar gone: entities that were deleted, or whose status changed, by key.
    :ivar lost: sessions whose lock expired under their receiver.
    """

    changed: frozenset[Timed]
    gone: frozenset[int]
    lost: tuple[SessionHold, ...]


# Most turns find one of these: receiving and settling tell nobody anything.
_NO_QUEUES: Final[frozenset[Timed]] = frozenset()
_NOTHING: Final = Happened(changed=_NO_QUEUES, gone=frozenset(), lost=())


class Effects:
    """Collects effects until they are taken; calls `on_first` when the first one is noted."""

    __slots__ = ("_changed", "_gone", "_lost", "_quiet", "_retimed", "on_first")

    def __init__(self) -> None:
        self._changed: set[Timed] = set()
        self._retimed: set[Timed] = set()
        self._gone: set[int] = set()
        self._lost: list[SessionHold] = []
        self._quiet = True
        self.on_first: Callable[[], None] | None = None

    def changed(self, queue: Timed) -> None:
        """Note that a queue was touched, such that there may be more to receive."""
        self._changed.add(queue)
        self._retimed.add(queue)
        if self._quiet:
            self._announce()

    def retimed(self, queue: Timed) -> None:
        """Note that only the time may have changed at which a queue next needs attention."""
        self._retimed.add(queue)

    def take_retimed(self) -> frozenset[Timed]:
        """Return what was touched in any way since the last call, and forget it."""
        if len(self._retimed) == 0:
            return _NO_QUEUES
        retimed = frozenset(self._retimed)
        self._retimed.clear()
        return retimed

    def gone(self, entity: int) -> None:
        """Note that an entity was deleted or changed its status."""
        self._gone.add(entity)
        self._announce()

    def lost(self, hold: SessionHold) -> None:
        """Note that the lock of a session expired."""
        self._lost.append(hold)
        self._announce()

    def take(self) -> Happened:
        """Return what happened and forget it."""
        if self._quiet:
            return _NOTHING
        happened = Happened(changed=frozenset(self._changed), gone=frozenset(self._gone), lost=tuple(self._lost))
        self._changed.clear()
        self._gone.clear()
        self._lost.clear()
        self._quiet = True
        return happened

    def _announce(self) -> None:
        if self._quiet:
            self._quiet = False
            if self.on_first is not None:
                self.on_first()
