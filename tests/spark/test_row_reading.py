"""Rows become messages: ids that are repeated and never shared, windows of bounded size, lanes that keep order."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.errors import InvalidMessageError
from servicebus_pair.spark.codec import RowReader
from servicebus_pair.spark.naming import Position
from servicebus_pair.spark.windows import lanes, windows

BODIES = st.lists(st.binary(max_size=8), min_size=1, max_size=40)


def ids(bodies: list[bytes], *, run: str = "r", partition: int = 0, subject: str | None = None) -> list[str | None]:
    reader = RowReader(Position(run, partition), entity="flights")
    return [reader.read({"body": body, "messageId": None, "subject": subject}).message.message_id for body in bodies]


@given(BODIES, st.text(min_size=1, max_size=300), st.integers(0, 2**31))
def test_ids_that_are_made_are_repeated_differ_and_fit_the_service(bodies: list[bytes], run: str, partition: int):
    made = ids(bodies, run=run, partition=partition)
    assert made == ids(bodies, run=run, partition=partition)
    assert len(set(made)) == len(bodies)
    assert all(made_id is not None and len(made_id) <= 128 for made_id in made)
    assert not set(made) & set(ids(bodies, run=run + "x", partition=partition))
    assert not set(made) & set(ids(bodies, run=run, partition=partition + 1))


@given(BODIES, st.randoms())
def test_rows_that_come_in_another_order_never_get_the_id_of_another_row(bodies: list[bytes], random: object):
    other = list(bodies)
    random.shuffle(other)  # type: ignore[attr-defined]
    by_id = dict(zip(ids(bodies), bodies, strict=True))
    for made, body in zip(ids(other), other, strict=True):
        assert by_id.get(made, body) == body


def test_rows_that_differ_in_any_column_differ_in_their_ids():
    assert ids([b"x"], subject="UA") != ids([b"x"], subject="B6")


def test_an_id_that_is_given_stands():
    row = {"body": "x", "messageId": "mine", "entity": "delays", "partitionKey": "p"}
    read = RowReader(Position("r", 0), entity="flights").read(row)
    assert (read.message.message_id, read.entity, read.key, read.size) == ("mine", "delays", "p", 1)


def test_properties_take_their_types_from_json_and_nulls_are_none():
    given = {"origin": "EWR", "far": 5, "late": 2.0, "own": False, "absent": None}
    read = RowReader(Position("r", 0), entity="flights").read({"body": "x", "applicationProperties": json.dumps(given)})
    found = read.message.application_properties
    assert found == {"origin": "EWR", "far": {"TYPE": "LONG", "VALUE": 5}, "late": 2.0, "own": False}
    assert isinstance(found["late"], float)


WRONG: dict[str, dict[str, Any]] = {
    "column body is null: it is required": {"body": None},
    "column entity is ' ': it must name a queue or topic": {"entity": " "},
    "column timeToLive is 0: it must be whole seconds from 1": {"timeToLive": 0},
    "message_id cannot be longer than 128 characters": {"messageId": "x" * 129},
    "column applicationProperties is not JSON": {"applicationProperties": "{"},
    "column applicationProperties is not a JSON object": {"applicationProperties": "[1]"},
    "column applicationProperties: a is a list: allowed are string,": {"applicationProperties": '{"a": [1]}'},
}


@pytest.mark.parametrize("says", WRONG)
def test_a_row_that_cannot_be_a_message_is_named_by_its_number_and_column(says: str):
    reader = RowReader(Position("r", 3), entity="flights")
    reader.read({"body": "fine"})
    with pytest.raises(InvalidMessageError) as caught:
        reader.read({"body": "x"} | WRONG[says])
    assert str(caught.value).startswith("row 1 of partition 3 cannot be a message: ")
    assert says in str(caught.value)


@given(st.lists(st.integers(0, 100)), st.integers(1, 20), st.integers(1, 300))
def test_windows_cover_every_row_once_and_keep_to_both_limits(sizes: list[int], rows: int, most: int):
    cut = list(windows(sizes, rows=rows, most_bytes=most))
    assert [number for window in cut for number in window] == list(range(len(sizes)))
    for window in cut:
        assert len(window) <= rows
        assert len(window) == 1 or sum(sizes[number] for number in window) <= most


KEYS = st.lists(st.none() | st.sampled_from("abcdef"), min_size=1, max_size=200)


@given(KEYS, st.integers(0, 100_000), st.integers(1, 8))
def test_lanes_hold_every_row_once_and_keep_the_order_of_each_key(keys: list[str | None], size: int, most: int):
    spread = lanes(keys, [size] * len(keys), most=most)
    assert sorted(number for lane in spread for number in lane) == list(range(len(keys)))
    assert 1 <= len(spread) <= most
    assert all(lane == sorted(lane) for lane in spread)
    for key in set(keys) - {None}:
        assert sum(any(keys[number] == key for number in lane) for lane in spread) == 1


def test_few_bytes_take_one_lane():
    assert lanes([None] * 100, [100] * 100, most=8) == [list(range(100))]
