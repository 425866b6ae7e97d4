"""How long a process may act on the health that it loaded (SPEC section 6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servicebus_pair.core.health.leases import Leases
from servicebus_pair.core.model.health_state import EntityHealth, HealthState

NOW = 1000.0
REFRESH = 8.0
HEALTHY = EntityHealth(since=900.0, last_ping=950.0, epoch=4)
OUT = EntityHealth(
    HealthState.FAILED_OVER,
    since=NOW,
    last_ping=960.0,
    held_until=1100.0,
    epoch=5,
    effective_at=NOW + REFRESH,
    caught_up=frozenset({1}),
)


def test_section_6_a_lease_lasts_half_the_refresh_from_the_start_of_the_load() -> None:
    leases = Leases(REFRESH)
    assert leases.seconds_left("flights", NOW) < 0
    leases.loaded("Flights", began=NOW)
    assert leases.loaded_at("flights") == NOW
    assert [leases.seconds_left("flights", NOW + passed) for passed in (0.0, 3.0, 4.0, 5.0)] == [4.0, 1.0, 0.0, -1.0]
    times = (leases.duration, leases.hold_seconds, leases.save_window, leases.abandoned_after)
    assert (*times, leases.complete_within) == (4.0, 10.0, 2.0, 34.0, 26.0)
    assert (Leases(1.0).duration, Leases(1.0).save_window, Leases(1.0).hold_seconds) == (0.5, 0.25, 1.25)


@pytest.mark.parametrize(
    ("seen_at", "seconds"),
    [(NOW, 8.0), (NOW + 5, 8.0), (NOW + 15.9, 8.0), (NOW + 16, 0.0), (NOW + 50, 0.0)],
    ids=["at once", "late", "just not old", "old", "long ago"],
)
def test_section_6_a_change_of_route_settles_from_when_it_is_seen_unless_it_is_old(
    seen_at: float, seconds: float
) -> None:
    leases = Leases(REFRESH)
    assert leases.seconds_to_settle("flights", seen_at) < 0
    assert leases.adopt("flights", HEALTHY, OUT, seen_at) == OUT
    assert leases.seconds_to_settle("FLIGHTS", seen_at) == seconds
    # The same decision again, with another ping and held for longer, does not settle anew.
    pinged = replace(OUT, last_ping=990.0, held_until=1200.0, caught_up=frozenset())
    assert leases.adopt("flights", OUT, pinged, seen_at + 3) == pinged
    assert leases.seconds_to_settle("flights", seen_at + 3) == seconds - 3


def test_section_6_a_change_effective_before_it_began_does_not_settle() -> None:
    leases = Leases(REFRESH)
    leases.observed("flights", replace(OUT, effective_at=NOW - 5), NOW)
    assert leases.seconds_to_settle("flights", NOW) == 0


@pytest.mark.parametrize(
    ("refresh", "passed", "adopted"),
    [(REFRESH, 0.0, False), (REFRESH, 3.9, False), (REFRESH, 4.0, True), (1.0, 0.4, False), (1.0, 0.5, True)],
)
def test_section_6_an_earlier_change_is_not_adopted_until_the_own_one_is_visible_everywhere(
    refresh: float, passed: float, adopted: bool
) -> None:
    leases = Leases(refresh)
    leases.saved("flights", HEALTHY, OUT, NOW)
    earlier = replace(HEALTHY, last_ping=999.0)
    found = leases.adopt("flights", OUT, earlier, NOW + passed)
    assert found == (replace(earlier, caught_up=frozenset()) if adopted else replace(OUT, last_ping=999.0))


@pytest.mark.parametrize("epoch", [5, 6])
def test_section_6_a_change_of_another_process_is_adopted_at_once_if_it_is_not_an_earlier_one(epoch: int) -> None:
    for ours, theirs in (("a", "b"), ("b", "a")):
        leases, known = Leases(REFRESH), replace(OUT, token=ours)
        leases.saved("flights", HEALTHY, known, NOW)
        found = replace(OUT, token=theirs, epoch=epoch)
        assert leases.adopt("flights", known, found, NOW) == found


def test_section_6_what_is_saved_of_a_ping_is_no_decision() -> None:
    leases = Leases(REFRESH)
    leases.saved("flights", OUT, replace(OUT, last_ping=990.0), NOW)
    assert leases.seconds_to_settle("flights", NOW) < 0
    # The same state, decided again, is another decision.
    leases.saved("flights", OUT, replace(OUT, effective_at=NOW + 9), NOW)
    assert leases.seconds_to_settle("flights", NOW) == 9
    # So is the one that was made before it, and that another process makes known again.
    leases.saved("flights", replace(OUT, effective_at=NOW + 9), OUT, NOW)
    assert leases.seconds_to_settle("flights", NOW) == 8


def test_section_6_reports_of_the_latest_ping_are_kept() -> None:
    leases = Leases(REFRESH)
    newer = replace(OUT, last_ping=999.0, caught_up=frozenset({2}))
    assert leases.adopt("flights", newer, OUT, NOW) == newer
    assert leases.adopt("flights", OUT, newer, NOW) == newer
    known = replace(HEALTHY, held_until=1500.0)
    assert leases.adopt("flights", known, HEALTHY, NOW).held_until == 1500.0


@pytest.mark.parametrize(("passed", "abandoned"), [(0.0, False), (33.9, False), (34.0, True)])
def test_section_6_a_failback_that_lasts_too_long_has_no_writer(passed: float, abandoned: bool) -> None:
    leases = Leases(REFRESH)
    failing_back = replace(OUT, state=HealthState.FAILING_BACK, token="t")
    leases.observed("flights", failing_back, NOW)
    assert leases.is_abandoned("flights", failing_back, NOW + passed) is abandoned
    assert not leases.is_abandoned("flights", OUT, NOW + passed)
