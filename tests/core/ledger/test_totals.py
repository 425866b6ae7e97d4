"""Each message is counted once by its outcome, and totals add up (SPEC section 9)."""

from __future__ import annotations

from dataclasses import asdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.ledger.reconcile import Outcome, Verdict
from servicebus_pair.core.ledger.totals import Totals
from servicebus_pair.core.model.events import Route

VERDICTS = st.builds(
    Verdict,
    st.just("m"),
    st.just("flights"),
    st.sampled_from(Outcome),
    st.none() | st.sampled_from(Route),
    st.booleans(),
    st.integers(0, 3),
    st.integers(0, 3),
    st.integers(0, 3),
    st.none() | st.floats(0, 100),
    st.none(),
    st.none(),
    st.none(),
    st.integers(0, 3),
    st.booleans(),
)


def counted(outcome: Outcome, route: Route | None, *, syphoned: bool = False, receipts: int = 0) -> dict[str, float]:
    """Return what is not zero in the totals of one message."""
    verdict = Verdict("m", "flights", outcome, route, syphoned, 1, 3, 2, None, 1.0, None, None, receipts)
    return {name: value for name, value in asdict(Totals.of(verdict)).items() if value}


@pytest.mark.parametrize(
    ("outcome", "route", "names"),
    [
        (Outcome.DELIVERED, Route.PRIMARY, {"sent", "primary", "delivered"}),
        (Outcome.WAITING, Route.BACKLOG, {"sent", "diverted", "waiting"}),
        (Outcome.DEAD_LETTERED, Route.BACKLOG, {"sent", "diverted", "dead_lettered"}),
        (Outcome.CONSUMED, Route.PRIMARY, {"sent", "primary", "consumed", "consumed_unseen"}),
        (Outcome.SPOOLED, Route.SPOOLED, {"sent", "diverted", "spooled"}),
        (Outcome.LOST, Route.BACKLOG, {"sent", "diverted", "lost"}),
        (Outcome.UNRECORDED, None, {"unrecorded"}),
    ],
)
def test_a_message_is_counted_by_its_outcome_and_route(outcome: Outcome, route: Route | None, names: set[str]) -> None:
    one = dict.fromkeys({"messages", *names}, 1)
    assert counted(outcome, route) == {**one, "duplicates": 3, "duplicates_predicted": 2}


def test_a_receipt_shows_that_a_message_was_consumed_and_a_move_that_it_was_syphoned() -> None:
    seen = counted(Outcome.CONSUMED, Route.BACKLOG, syphoned=True, receipts=1)
    assert "consumed_unseen" not in seen
    assert (seen["consumed"], seen["syphoned"]) == (1, 1)


@given(verdicts=st.lists(VERDICTS, max_size=6))
def test_totals_are_sums_and_the_longest_wait(verdicts: list[Verdict]) -> None:
    each = [asdict(Totals.of(verdict)) for verdict in verdicts]
    total = asdict(Totals.of_all(verdicts))
    longest = total.pop("longest_wait_seconds")
    assert longest == max((verdict.wait_seconds or 0.0 for verdict in verdicts), default=0.0)
    assert total == pytest.approx({name: sum(one[name] for one in each) for name in total})
    assert total["waited"] == sum(verdict.wait_seconds is not None for verdict in verdicts)
    assert total["altered"] == sum(verdict.altered for verdict in verdicts)
