"""SPEC section 9, per incident: spans in which an entity's sends were diverted."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.events import Route
from servicebus_pair.core.incidents import QUIET_SECONDS, Incident, Slice, incident_at, incidents

Acceptance = tuple[float, Route]
acceptances = st.lists(
    st.tuples(st.integers(0, 4000).map(float), st.sampled_from(Route)), max_size=60, unique_by=lambda a: a[0]
)


def found(*accepted: Acceptance, width: float = QUIET_SECONDS) -> list[Incident]:
    """The incidents of acceptances, which are cut into slices of this width."""
    parts = groupby(sorted(accepted), key=lambda each: each[0] // width)
    return list(incidents(slice_of([*part]) for _, part in parts))


def slice_of(part: Sequence[Acceptance]) -> Slice:
    def ends(route: Route) -> tuple[float, float] | None:
        times = [at for at, way in part if way is route]
        return (min(times), max(times)) if times else None

    return Slice(diverted=ends(Route.BACKLOG), direct=ends(Route.PRIMARY))


def by_definition(accepted: Sequence[Acceptance]) -> list[Incident]:
    spans: list[list[float]] = []
    for at, route in sorted(accepted):
        if route is Route.BACKLOG:
            last = spans[-1][-1] if spans else None
            back = any(way is Route.PRIMARY and last is not None and last < other < at for other, way in accepted)
            if last is None or (back and at - last > QUIET_SECONDS):
                spans.append([])
            spans[-1].append(at)
    return [Incident(number, span[0], span[-1]) for number, span in enumerate(spans, 1)]


def diverted(*times: float) -> list[Acceptance]:
    return [(at, Route.BACKLOG) for at in times]


def direct(*times: float) -> list[Acceptance]:
    return [(at, Route.PRIMARY) for at in times]


def test_an_entity_that_was_never_diverted_had_no_incident() -> None:
    assert found(*direct(0, 500, 1000)) == []


def test_two_outages_with_the_primary_between_them_are_two_incidents() -> None:
    assert found(*diverted(100, 130), *direct(140, 300), *diverted(400, 401)) == [
        Incident(1, 100, 130),
        Incident(2, 400, 401),
    ]


def test_few_messages_in_a_long_outage_are_one_incident() -> None:
    assert found(*direct(0), *diverted(100, 1000, 3000), *direct(3001)) == [Incident(1, 100, 3000)]


def test_a_process_that_still_reaches_the_primary_makes_no_second_incident() -> None:
    assert found(*diverted(100, 102), *direct(101, 103), *diverted(104)) == [Incident(1, 100, 104)]


@given(acceptances, st.sampled_from([1.0, 7.0, QUIET_SECONDS]))
def test_slices_of_any_width_tell_the_same_as_the_acceptances(accepted: list[Acceptance], width: float) -> None:
    assert found(*accepted, width=width) == by_definition(accepted)


@given(acceptances)
def test_each_diverted_message_is_of_exactly_one_incident(accepted: list[Acceptance]) -> None:
    spans = found(*accepted)
    for at, route in accepted:
        holding = [each.number for each in spans if each.began <= at <= each.ended]
        assert incident_at(spans, at) == (holding[0] if holding else None)
        assert len(holding) == 1 or route is Route.PRIMARY
