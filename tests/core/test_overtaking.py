"""SPEC section 9: what came out of order per session."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.overtaking import Arrival, in_order


def overtaken(*sent: int) -> dict[str, str]:
    """Messages that were overtaken, and by which, of a session whose messages arrived in this order."""
    judged = in_order(Arrival(str(at), (float(at), 0, 0)) for at in sent)
    return {each.message_id: each.by for each in judged if each.by is not None}


def test_what_arrives_as_it_was_accepted_is_in_order() -> None:
    assert overtaken(1, 2, 3, 4) == {}


def test_one_that_arrives_late_is_overtaken_by_the_last_of_those_before_it() -> None:
    assert overtaken(1, 3, 4, 2, 5) == {"2": "4"}


def test_a_block_that_went_through_the_backlog_was_overtaken_as_a_whole() -> None:
    assert overtaken(1, 5, 6, 2, 3, 4, 7) == {"2": "6", "3": "6", "4": "6"}


def test_of_messages_accepted_at_once_the_lines_of_the_ledger_tell_the_order() -> None:
    first, second = Arrival("first", (1.0, 0, 7)), Arrival("second", (1.0, 0, 8))
    assert [each.by for each in in_order([first, second])] == [None, None]
    assert [each.by for each in in_order([second, first])] == [None, "second"]


@given(st.permutations(range(12)))
def test_a_message_is_overtaken_exactly_when_a_later_one_arrived_before_it(order: list[int]) -> None:
    late = {str(at) for index, at in enumerate(order) if any(before > at for before in order[:index])}
    assert set(overtaken(*order)) == late
