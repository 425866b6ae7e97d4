"""Batches of rows are bounded in size, and groups of a batch keep the order of each key."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.spark.base.row_batches import group_by_key, split_rows


@given(st.lists(st.integers(0, 100)), st.integers(1, 20), st.integers(1, 300))
def test_split_rows_covers_every_row_within_both_limits(sizes: list[int], max_rows: int, max_bytes: int):
    batches = list(split_rows(sizes, max_rows=max_rows, max_bytes=max_bytes))
    assert [number for batch in batches for number in batch] == list(range(len(sizes)))
    for batch in batches:
        assert len(batch) <= max_rows
        assert len(batch) == 1 or sum(sizes[number] for number in batch) <= max_bytes


KEYS = st.lists(st.none() | st.sampled_from("abcdef"), min_size=1, max_size=200)


@given(KEYS, st.integers(0, 100_000), st.integers(1, 8))
def test_group_by_key_keeps_every_row_and_the_order_of_each_key(keys: list[str | None], size: int, max_groups: int):
    groups = group_by_key(keys, [size] * len(keys), max_groups=max_groups)
    assert sorted(number for group in groups for number in group) == list(range(len(keys)))
    assert 1 <= len(groups) <= max_groups
    assert all(group == sorted(group) for group in groups)
    for key in set(keys) - {None}:
        assert sum(any(keys[number] == key for number in group) for group in groups) == 1


def test_few_bytes_form_one_group():
    assert group_by_key([None] * 100, [100] * 100, max_groups=8) == [list(range(100))]
