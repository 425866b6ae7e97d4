"""Credit that bounds the bytes which a receiver holds, whatever the size of its messages (SPEC section 6)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.protocol.byte_window import ByteWindow
from tests.examples import examples

LIMIT = 10_000


def test_one_message_is_asked_for_until_a_size_is_known() -> None:
    window = ByteWindow(LIMIT)
    assert window.credit(500) == 1
    window.add(100)
    assert (window.credit(499), window.credit(50)) == (99, 50)
    small = ByteWindow(LIMIT)
    small.add(1)
    assert small.credit(2 * LIMIT) == LIMIT - 1
    empty = ByteWindow(LIMIT)
    empty.add(0)
    assert empty.credit(500) == 1, "a message without bytes says nothing of the next one"


def test_a_message_larger_than_the_limit_is_asked_for_alone() -> None:
    window = ByteWindow(LIMIT)
    for _ in range(3):
        window.add(5 * LIMIT)
        assert window.credit(500) == 0
    window.remove(15 * LIMIT)
    assert window.credit(500) == 1


def test_a_large_message_counts_less_with_every_receive() -> None:
    window = ByteWindow(LIMIT)
    for size in (5_000, 100):
        window.add(size)
        window.remove(size)
    asked = list[int]()
    for _ in range(20):
        asked.append(window.credit(500))
        window.begin()
    assert asked[:3] == [2, 2, 3]
    assert (asked == sorted(asked), asked[-1] > 400) == (True, True)


@examples(100)
@given(st.lists(st.integers(1, 3_000), min_size=1, max_size=200))
def test_section_6_what_has_arrived_exceeds_the_limit_by_larger_messages_only(sizes: list[int]) -> None:
    """Each message changes what may be asked for, so that no more are under way than were asked for last."""
    window, held, largest = ByteWindow(LIMIT), list[int](), 0
    for size in sizes:
        if window.credit(500) == 0:
            assert held
            for each in held:
                window.remove(each)
            held.clear()
        assert window.credit(500) > 0
        assert sum(held) + largest <= LIMIT
        window.add(size)
        held.append(size)
        largest = max(largest, size)
