"""When a process may act on shared health, so that no two processes act on different routes: pure (SPEC section 6).

With ``refresh`` as ``health_refresh``, this holds as long as what one process saves can be loaded by all others within
half of ``refresh`` from the start of the save:

- A lease lasts half of ``refresh`` from the start of a load. Attempts to send end within it.
- A change of route settles for ``refresh``: by then every process has loaded it or has no lease. It settles from the
  moment a process learns of it, so that clocks need not agree; only one that has settled twice over, by the clock of
  whoever loads it first, counts as old.
- Only its writer writes of a failback, nobody writes of a healthy entity, except to fail it over, and what others write
  of a failed-over entity (pings, reports) keeps its route.
- A failback holds for a quarter longer. A process that loaded health before it, and saved within a quarter of
  ``refresh``, has overwritten it by then, which its writer notices by loading it again (Fischer's rule). One by hand,
  and a change to the spool, which are noticed when the lease is renewed, half of ``refresh`` later at most, settle for
  three quarters longer.
- A change that was overwritten and then made again is another one, and settles again.
- A failback that lasts too long has no writer any more; every process may abandon it, once an end that its writer has
  written in time can be loaded. A writer that is late abandons it, too.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from math import inf
from typing import Final

from servicebus_pair.core.model.health_state import EntityHealth, HealthState, latest_ping

FAILBACK_POLL_SECONDS: Final = 10.0
"""How long a failback looks for an empty backlog while all sends are held."""


@dataclass(slots=True)
class _Lease:
    loaded_at: float = -inf
    observed_at: float = -inf
    acts_at: float = -inf


@dataclass(frozen=True, slots=True)
class Leases:
    """The leases of one process, by folded entity; times are those of its clock.

    :param refresh: ``health_refresh`` in seconds.
    """

    refresh: float
    _leases: dict[str, _Lease] = field(default_factory=dict)

    @property
    def duration(self) -> float:
        """Seconds for which loaded health may be acted on."""
        return self.refresh / 2

    @property
    def hold_seconds(self) -> float:
        """How long a failback holds sends before the backlog is looked at."""
        return 1.25 * self.refresh

    @property
    def save_window(self) -> float:
        """Seconds after the start of a load in which a save that follows from it must start."""
        return self.refresh / 4

    @property
    def complete_within(self) -> float:
        """How long after its begin the writer of a failback may start to save its end."""
        return 2 * self.refresh + FAILBACK_POLL_SECONDS

    @property
    def abandoned_after(self) -> float:
        """How long a failback may last, seen from any process: three quarters longer would do, see above."""
        return self.complete_within + self.refresh

    def loaded(self, entity: str, *, began: float) -> None:
        """Start a lease with a load that began at ``began``."""
        self._of(entity).loaded_at = began

    def loaded_at(self, entity: str) -> float:
        """Return the start of the last load."""
        return self._of(entity).loaded_at

    def seconds_left(self, entity: str, now: float) -> float:
        """Return how long the health may still be acted on."""
        return self._of(entity).loaded_at + self.duration - now

    def observed(self, entity: str, health: EntityHealth, now: float) -> None:
        """Take note of a decision that was loaded or saved for the first time."""
        lease = self._of(entity)
        settle = health.effective_at - health.since
        lease.observed_at = now
        lease.acts_at = now + settle if now < health.effective_at + settle else now

    def saved(self, entity: str, before: EntityHealth, after: EntityHealth, now: float) -> None:
        """Take note of what this process saved; a record of a ping is no decision."""
        if _decision(before) != _decision(after):
            self.observed(entity, after, now)

    def adopt(self, entity: str, known: EntityHealth, shared: EntityHealth, now: float) -> EntityHealth:
        """Return the health that this process has after it loaded ``shared``."""
        ping = latest_ping(known, shared)
        caught_up = shared.caught_up if ping == shared.last_ping else known.caught_up
        if _decision(shared) == _decision(known):
            held = shared.held_until if shared.failed_over else known.held_until
            return replace(known, last_ping=ping, held_until=held, caught_up=caught_up)
        if shared.epoch < known.epoch and self._of(entity).observed_at > now - self.refresh / 2:
            return replace(known, last_ping=ping)  # what is known is not visible everywhere yet
        self.observed(entity, shared, now)
        return replace(shared, last_ping=ping, caught_up=caught_up)

    def seconds_to_settle(self, entity: str, now: float) -> float:
        """Return how long the route may not be acted on yet; 0 or less if it may."""
        return self._of(entity).acts_at - now

    def is_abandoned(self, entity: str, health: EntityHealth, now: float) -> bool:
        """Return whether this is a failback whose writer has died."""
        observed_at = self._of(entity).observed_at
        return health.state is HealthState.FAILING_BACK and observed_at <= now - self.abandoned_after

    def _of(self, entity: str) -> _Lease:
        return self._leases.setdefault(entity.casefold(), _Lease())


def _decision(health: EntityHealth) -> tuple[object, ...]:
    """Return what distinguishes a decision from others; all that know it may have heard of different pings.

    Two processes may decide the same, one after the other: the time, which pings keep, tells them apart.
    """
    return health.epoch, health.route, health.spool, health.token, health.effective_at
