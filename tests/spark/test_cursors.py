"""Cursors over sequence numbers: no message is passed over, none is read twice, every batch gets on."""

from __future__ import annotations

from bisect import bisect_left
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.cursors import (
    Ahead,
    Peekable,
    check_numbers,
    check_range,
    idle_pause,
    next_offsets,
    search_end,
    starting,
)

NUMBERS = st.lists(st.integers(1, 2**63 - 2), unique=True).map(sorted)
AHEAD = st.dictionaries(
    st.text("abc", min_size=1), st.tuples(st.integers(1, 500), st.integers(1, 500)).map(lambda n: Ahead(n[0], sum(n)))
)


def answered(numbers: list[int], first: int) -> tuple[int, int]:
    """Answer the search by the messages of a queue; return its result and how often it asked."""
    search, asked = search_end(first), 1
    number = next(search)
    while True:
        place = bisect_left(numbers, number)
        try:
            number = search.send(numbers[place] if place < len(numbers) else None)
        except StopIteration as end:
            return end.value, asked
        asked += 1


@given(NUMBERS, st.integers(1, 2**63 - 2))
def test_the_end_of_a_queue_is_found_whatever_numbers_are_missing(numbers: list[int], first: int):
    end, asked = answered(numbers, first)
    ahead = [number for number in numbers if number >= first]
    assert end == (ahead[-1] + 1 if ahead else first)
    assert asked <= 2 * 63 + 2


def test_the_end_of_a_million_messages_is_found_with_few_questions():
    end, asked = answered(list(range(1, 1_000_001)), 1)
    assert end == 1_000_001
    assert asked <= 42
    assert answered(list(range(1, 1_000_001)), end) == (end, 1), "nothing new costs one question"


@given(AHEAD, st.integers(1, 60) | st.none())
def test_a_batch_keeps_to_its_limit_gets_on_and_does_not_go_too_far(ahead: dict[str, Ahead], limit: int | None):
    start = {place: each.first for place, each in ahead.items()} | {"empty": 7}
    end = next_offsets(start, ahead, limit=limit)
    assert set(end) == set(start)
    assert end["empty"] == 7
    taken = {place: end[place] - start[place] for place in ahead}
    assert all(0 <= taken[place] <= each.end - each.first for place, each in ahead.items())
    whole = sum(each.end - each.first for each in ahead.values())
    assert sum(taken.values()) == (whole if limit is None else min(limit, whole))
    if limit is not None and limit >= len(ahead):
        assert all(taken.values()), "no queue waits for another one"


@given(AHEAD, st.integers(1, 60))
def test_batches_after_each_other_read_every_number_once(ahead: dict[str, Ahead], limit: int):
    offsets = {place: each.first for place, each in ahead.items()}
    read = dict.fromkeys(ahead, 0)
    while left := {
        place: Ahead(offsets[place], each.end) for place, each in ahead.items() if offsets[place] < each.end
    }:
        after = next_offsets(offsets, left, limit=limit)
        for place in ahead:
            read[place] += after[place] - offsets[place]
        offsets = after
    assert read == {place: each.end - each.first for place, each in ahead.items()}


def test_looks_that_find_nothing_are_a_second_apart_and_others_follow_at_once():
    assert idle_pause(100.0, now=100.25) == 0.75
    assert idle_pause(100.0, now=107.0) == 0.0
    assert idle_pause(-inf, now=107.0) == 0.0


def test_an_entity_that_numbers_by_partition_is_not_followed():
    check_numbers("flights", Ahead(1, 2**48))
    with pytest.raises(ConfigurationError, match=r"flights is partitioned: .* a stream would pass messages over"):
        check_numbers("flights", Ahead(5, (3 << 48) + 8))


def test_a_hole_is_skipped_in_one_step():
    assert next_offsets({"q": 1}, {"q": Ahead(10**9, 10**9 + 50)}, limit=10) == {"q": 10**9 + 10}


def test_an_offset_of_a_place_that_is_not_read_is_refused():
    assert starting(["a", "b"], {"b": 5}, option="startingOffsets") == {"a": 1, "b": 5}
    with pytest.raises(ConfigurationError, match="option startingOffsets names 'c': what is read is a, b"):
        starting(["a", "b"], {"c": 5}, option="startingOffsets")


def test_a_range_does_not_end_before_it_begins():
    check_range({"a": 5, "b": 1}, {"a": 5})
    with pytest.raises(ConfigurationError, match="option endingOffsets is 4 for a: allowed is a number from 5"):
        check_range({"a": 5, "b": 1}, {"a": 4})


def test_a_place_is_named_by_its_path_sub_queue_and_session():
    assert Peekable("flights").place == "flights"
    assert Peekable("flights", "deadLetter").place == "flights/$DeadLetterQueue"
    assert Peekable("flights", session_id="N1").place == "flights#N1"
