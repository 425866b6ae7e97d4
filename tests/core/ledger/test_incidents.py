"""Incidents: periods in which sends of an entity were diverted (SPEC section 9)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.ledger.incidents import (
    INCIDENT_GAP_SECONDS,
    Incident,
    LedgerSlice,
    find_incidents,
    incident_at,
)
from servicebus_pair.core.model.events import Route

Acceptance = tuple[float, Route]
acceptances = st.lists(
    # Few times, so that some are equal or exactly the gap apart.
    st.tuples(st.integers(0, 100).map(lambda at: 20.0 * at), st.sampled_from((Route.PRIMARY, Route.BACKLOG))),
    max_size=60,
)


def found(*accepted: Acceptance, width: float = INCIDENT_GAP_SECONDS) -> list[Incident]:
    """Return the incidents of these acceptances, read in slices of this width."""
    parts = groupby(sorted(accepted), key=lambda each: each[0] // width)
    return list(find_incidents(slice_of([*part]) for _, part in parts))


def slice_of(part: Sequence[Acceptance]) -> LedgerSlice:
    def ends(route: Route) -> tuple[float, float] | None:
        times = [at for at, way in part if way is route]
        return (min(times), max(times)) if times else None

    return LedgerSlice(diverted=ends(Route.BACKLOG), direct=ends(Route.PRIMARY))


def by_definition(accepted: Sequence[Acceptance]) -> list[Incident]:
    spans: list[list[float]] = []
    for at, route in sorted(accepted):
        if route is Route.BACKLOG:
            last = spans[-1][-1] if spans else None
            back = any(way is Route.PRIMARY and last is not None and last < other < at for other, way in accepted)
            if last is None or (back and at - last > INCIDENT_GAP_SECONDS):
                spans.append([])
            spans[-1].append(at)
    return [Incident(number, span[0], span[-1]) for number, span in enumerate(spans, 1)]


def diverted(*times: float) -> list[Acceptance]:
    return [(at, Route.BACKLOG) for at in times]


def direct(*times: float) -> list[Acceptance]:
    return [(at, Route.PRIMARY) for at in times]


def test_no_divert_is_no_incident() -> None:
    assert found(*direct(0, 500, 1000)) == []


def test_direct_messages_separate_two_incidents() -> None:
    assert found(*diverted(100, 130), *direct(140, 300), *diverted(400, 401)) == [
        Incident(1, 100, 130),
        Incident(2, 400, 401),
    ]


def test_sparse_diverts_are_one_incident() -> None:
    assert found(*direct(0), *diverted(100, 1000, 3000), *direct(3001)) == [Incident(1, 100, 3000)]


def test_direct_messages_within_the_gap_do_not_split_an_incident() -> None:
    assert found(*diverted(100, 102), *direct(101, 103), *diverted(104)) == [Incident(1, 100, 104)]
    assert [len(found(*diverted(0), *direct(1), *diverted(at))) for at in (60, 61)] == [1, 2]


@given(acceptances, st.sampled_from([1.0, 7.0, INCIDENT_GAP_SECONDS]))
def test_incidents_do_not_depend_on_slice_width(accepted: list[Acceptance], width: float) -> None:
    assert found(*accepted, width=width) == by_definition(accepted)


@given(acceptances)
def test_each_diverted_message_belongs_to_one_incident(accepted: list[Acceptance]) -> None:
    spans = found(*accepted)
    for at, route in accepted:
        holding = [each.number for each in spans if each.began <= at <= each.ended]
        assert incident_at(spans, at) == (holding[0] if holding else None)
        assert len(holding) == 1 or route is Route.PRIMARY
