"""Offsets by sequence number: no message is skipped or read twice, and every micro-batch makes progress."""

from __future__ import annotations

from bisect import bisect_left
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.spark.base.offsets import (
    OffsetRange,
    PeekTarget,
    check_not_partitioned,
    check_range,
    checkpoint_offsets,
    find_end,
    idle_delay,
    next_offsets,
    starting_offsets,
)
from servicebus_pair.spark.datasource.options import ReadOptions
from servicebus_pair.spark.datasource.reader import ServiceBusStreamReader

NUMBERS = st.lists(st.integers(1, 2**63 - 2), unique=True).map(sorted)
AHEAD = st.dictionaries(
    st.text("abc", min_size=1),
    st.tuples(st.integers(1, 500), st.integers(1, 500)).map(lambda n: OffsetRange(n[0], sum(n))),
)


def search_end(numbers: list[int], first: int) -> tuple[int, int]:
    """Run the search on a queue with these sequence numbers; return its result and the number of probes."""
    search, probes = find_end(first), 1
    number = next(search)
    while True:
        key = bisect_left(numbers, number)
        try:
            number = search.send(numbers[key] if key < len(numbers) else None)
        except StopIteration as end:
            return end.value, probes
        probes += 1


@given(NUMBERS, st.integers(1, 2**63 - 2))
def test_find_end_with_gaps_in_sequence_numbers(numbers: list[int], first: int):
    end, probes = search_end(numbers, first)
    ahead = [number for number in numbers if number >= first]
    assert end == (ahead[-1] + 1 if ahead else first)
    assert probes <= 2 * 63 + 2


def test_find_end_of_a_million_messages_takes_few_probes():
    end, probes = search_end(list(range(1, 1_000_001)), 1)
    assert end == 1_000_001
    assert probes <= 42
    assert search_end(list(range(1, 1_000_001)), end) == (end, 1), "one probe if there is nothing new"


@given(AHEAD, st.integers(1, 60) | st.none())
def test_micro_batch_respects_limit_makes_progress_and_stays_in_range(ahead: dict[str, OffsetRange], limit: int | None):
    start = {key: each.first for key, each in ahead.items()} | {"empty": 7}
    end = next_offsets(start, ahead, limit=limit)
    assert set(end) == set(start)
    assert end["empty"] == 7
    sizes = {key: end[key] - start[key] for key in ahead}
    assert all(0 <= sizes[key] <= each.end - each.first for key, each in ahead.items())
    whole = sum(each.end - each.first for each in ahead.values())
    assert sum(sizes.values()) == (whole if limit is None else min(limit, whole))
    if limit is not None and limit >= len(ahead):
        assert all(sizes.values()), "no queue starves"


@given(AHEAD, st.integers(1, 60))
def test_consecutive_micro_batches_read_every_number_once(ahead: dict[str, OffsetRange], limit: int):
    offsets = {key: each.first for key, each in ahead.items()}
    read = dict.fromkeys(ahead, 0)
    while left := {key: OffsetRange(offsets[key], each.end) for key, each in ahead.items() if offsets[key] < each.end}:
        after = next_offsets(offsets, left, limit=limit)
        for key in ahead:
            read[key] += after[key] - offsets[key]
        offsets = after
    assert read == {key: each.end - each.first for key, each in ahead.items()}


def test_idle_polls_are_a_second_apart():
    assert idle_delay(100.0, now=100.25) == 0.75
    assert idle_delay(100.0, now=107.0) == 0.0
    assert idle_delay(-inf, now=107.0) == 0.0


def test_partitioned_entity_is_rejected_for_streams():
    check_not_partitioned("flights", OffsetRange(1, 2**48))
    with pytest.raises(
        ConfigurationError, match=r"flights is partitioned: .* a stream, or a read by time, would skip messages"
    ):
        check_not_partitioned("flights", OffsetRange(5, (3 << 48) + 8))


@pytest.mark.parametrize(
    "offset",
    [5, [], None, "q", {"q": "1"}, {"q": 1.5}, {"q": nan}, {"q": True}, {"q": -1}, {"q": None}, {"claims": {"q": {}}}],
)
def test_what_another_has_written_to_a_checkpoint_is_no_offset(offset: object):
    with pytest.raises(ConfigurationError, match="no sequence numbers: it is damaged, or of a stream with"):
        checkpoint_offsets(offset)
    stream = ServiceBusStreamReader(ReadOptions.parse({"credential": "env:PAIR", "entity": "q"}, streaming=True))
    for start, end in (({}, offset), (offset, {})):
        with pytest.raises(ConfigurationError, match="the checkpoint has no sequence numbers"):
            stream.partitions(start, end)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="the checkpoint has no sequence numbers"):
        stream.latestOffset(offset, stream.getDefaultReadLimit())  # type: ignore[arg-type]


def test_gap_in_sequence_numbers_is_skipped_in_one_batch():
    assert next_offsets({"q": 1}, {"q": OffsetRange(10**9, 10**9 + 50)}, limit=10) == {"q": 10**9 + 10}


def test_offset_of_unread_entity_is_rejected():
    assert starting_offsets(["a", "b"], {"b": 5}, option="startingOffsets") == {"a": 1, "b": 5}
    with pytest.raises(
        ConfigurationError, match="option startingOffsets names 'c', which is not read: allowed are a, b"
    ):
        starting_offsets(["a", "b"], {"c": 5}, option="startingOffsets")


def test_range_that_ends_before_its_start_is_rejected():
    check_range({"a": 5, "b": 1}, {"a": 5})
    with pytest.raises(ConfigurationError, match="option endingOffsets is 4 for a: allowed is a number from 5"):
        check_range({"a": 5, "b": 1}, {"a": 4})


def test_offset_key_contains_path_sub_queue_and_session():
    assert PeekTarget("flights").offset_key == "flights"
    assert PeekTarget("flights", "deadLetter").offset_key == "flights/$DeadLetterQueue"
    assert PeekTarget("flights", session_id="N1").offset_key == "flights#N1"
