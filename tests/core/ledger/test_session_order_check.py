"""Order of arrival within a session (SPEC section 9)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.ledger.session_order_check import Arrival, check_order


def overtaken(*sent: int) -> dict[str, str]:
    """Return the overtaken messages, each with the one that overtook it, for this order of arrival."""
    checked = check_order(Arrival(str(at), (float(at), 0, 0)) for at in sent)
    return {each.message_id: each.overtaken_by for each in checked if each.overtaken_by is not None}


def test_late_message_is_overtaken_by_the_last_one_before_it() -> None:
    assert overtaken(1, 3, 4, 2, 5) == {"2": "4"}


def test_every_message_of_a_late_block_is_overtaken() -> None:
    assert overtaken(1, 5, 6, 2, 3, 4, 7) == {"2": "6", "3": "6", "4": "6"}


def test_ledger_line_breaks_ties_of_acceptance_time() -> None:
    first, second = Arrival("first", (1.0, 0, 7)), Arrival("second", (1.0, 0, 8))
    assert [each.overtaken_by for each in check_order([first, second])] == [None, None]
    assert [each.overtaken_by for each in check_order([second, first])] == [None, "second"]


@given(st.permutations(range(12)))
def test_message_is_overtaken_if_a_later_one_arrived_before(order: list[int]) -> None:
    late = {str(at) for index, at in enumerate(order) if any(before > at for before in order[:index])}
    assert set(overtaken(*order)) == late
