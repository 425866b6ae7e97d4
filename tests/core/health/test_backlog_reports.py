"""A syphon says once after each ping, and again if that was lost, that little is left of a queue (SPEC section 6)."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_pair.core.health.backlog_reports import BacklogReports
from servicebus_pair.core.model.health_state import EntityHealth, HealthState
from servicebus_pair.core.model.health_transitions import CaughtUp
from tests.core.support.manual_clock import ManualClock

REFRESH = 5.0
OUT = EntityHealth(HealthState.FAILED_OVER, last_ping=10.0)


class Registry:
    """Takes what is reported; the health of all entities is ``health``."""

    def __init__(self, health: EntityHealth) -> None:
        self.health = health
        self.leases = SimpleNamespace(refresh=REFRESH)
        self.applied: list[tuple[str, CaughtUp]] = []
        self.watched: list[str] = []

    def current(self, _: str) -> EntityHealth:
        return self.health

    def apply(self, entity: str, event: CaughtUp) -> None:
        self.applied.append((entity, event))

    def watch(self, entity: str) -> None:
        self.watched.append(entity)

    def unwatch(self, entity: str) -> None:
        self.watched.remove(entity)


def reporting(health: EntityHealth = OUT) -> tuple[BacklogReports, Registry, ManualClock]:
    registry, clock = Registry(health), ManualClock(100.0)
    unlike: Any = registry
    return BacklogReports(unlike, ["a", "b", "c"], clock=clock), registry, clock


@pytest.mark.parametrize(
    ("health", "wanted"),
    [
        (OUT, True),
        (replace(OUT, caught_up=frozenset({0, 2})), True),
        (replace(OUT, caught_up=frozenset({1})), False),
        (replace(OUT, last_ping=None), False),
        (replace(OUT, state=HealthState.HEALTHY), False),
        (replace(OUT, state=HealthState.FAILING_BACK), False),
    ],
)
def test_section_6_what_is_left_matters_while_failed_over_after_a_ping(health: EntityHealth, wanted: bool) -> None:
    reports, _, _ = reporting(health)
    assert reports.is_wanted("flights", "b") is wanted
    assert not reports.is_wanted("flights", "elsewhere")


def test_section_6_a_report_is_repeated_only_if_it_was_lost_or_after_the_next_ping() -> None:
    reports, registry, clock = reporting()
    reports.caught_up("Flights", "b")
    assert (reports.is_wanted("flights", "b"), reports.is_wanted("flights", "a")) == (False, True)
    assert reports.is_wanted("delays", "b")
    clock.time += REFRESH - 0.1
    assert not reports.is_wanted("flights", "b")
    clock.time += 0.1
    assert reports.is_wanted("flights", "b"), "it is not in the shared health"
    # Those since the same ping are reported together, so that one save carries all of them.
    reports.caught_up("flights", "c")
    assert not reports.is_wanted("flights", "c")
    registry.health = replace(OUT, last_ping=20.0)
    assert reports.is_wanted("flights", "c")
    reports.caught_up("flights", "a")
    assert [(entity, set(event.queues)) for entity, event in registry.applied] == [
        ("Flights", {1}),
        ("flights", {1, 2}),
        ("flights", {0}),
    ]


def test_an_entity_is_watched_while_its_messages_are_moved() -> None:
    reports, registry, _ = reporting()
    reports.watch("flights")
    assert registry.watched == ["flights"]
    reports.unwatch("flights")
    assert registry.watched == []
