"""A figure of a benchmark and its goal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """A figure.

    :ivar name: describes the figure without further context.
    :ivar unit: of the value and the goal.
    :ivar at_most: upper bound; None = unbounded.
    :ivar at_least: lower bound; None = unbounded.
    """

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def goal(self) -> str | None:
        """The goal in words; None without a goal."""
        bounds = [
            f"{sign} {bound:g}" for sign, bound in (("<=", self.at_most), (">=", self.at_least)) if bound is not None
        ]
        return " and ".join(bounds) if len(bounds) > 0 else None

    @property
    def holds(self) -> bool | None:
        """Whether the goal is met; None without a goal."""
        if self.goal is None:
            return None
        low_enough = self.at_most is None or self.value <= self.at_most
        return low_enough and (self.at_least is None or self.value >= self.at_least)

    def as_json(self) -> dict[str, str | float | bool | None]:
        return {"measure": self.name, "value": self.value, "unit": self.unit, "goal": self.goal, "holds": self.holds}
