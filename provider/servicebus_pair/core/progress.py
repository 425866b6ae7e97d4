"""How far a syphon is, and how long it will take (SPEC section 6). Pure."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Progress"]


@dataclass(frozen=True, slots=True)
class Progress:
    """What a syphon did so far, and an estimate of the rest.

    :param moved: messages confirmed by the primary.
    :param dead_lettered: messages that can never be delivered.
    :param seconds: since it began, pauses included.
    :param remaining: what the queues hold now, as their administration counts it; it may grow while a
        syphon works, so it is never what ends a drain. ``None`` when the count cannot be read.
    """

    moved: int
    dead_lettered: int
    seconds: float
    remaining: int | None = None

    @property
    def per_second(self) -> float:
        """Messages a second since the beginning."""
        return (self.moved + self.dead_lettered) / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_seconds(self) -> float | None:
        """Seconds until the rest is moved at this rate; ``None`` when the rest or the rate is unknown."""
        if self.remaining is None:
            return None
        if self.remaining == 0:
            return 0.0
        return self.remaining / self.per_second if self.per_second > 0 else None
