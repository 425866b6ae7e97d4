"""Generated message ids are the same in every task attempt."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.spark.base.message_ids import MessageIdGenerator

BODIES = st.lists(st.binary(max_size=8), min_size=1, max_size=40)


def ids(bodies: list[bytes], *, run: str = "r", partition: int = 0, subject: str | None = None) -> list[str]:
    generator = MessageIdGenerator(run, partition)
    return [generator.message_id(body, (subject,)) for body in bodies]


@given(BODIES, st.text(min_size=1, max_size=300), st.integers(0, 2**31))
def test_generated_ids_are_stable_distinct_and_short_enough(bodies: list[bytes], run: str, partition: int):
    made = ids(bodies, run=run, partition=partition)
    assert made == ids(bodies, run=run, partition=partition)
    assert len(set(made)) == len(bodies)
    assert all(len(each) <= 128 for each in made)
    assert not set(made) & set(ids(bodies, run=run + "x", partition=partition))
    assert not set(made) & set(ids(bodies, run=run, partition=partition + 1))


@given(BODIES, st.randoms())
def test_reordered_rows_keep_their_ids(bodies: list[bytes], random: Random):
    other = list(bodies)
    random.shuffle(other)
    assert sorted(zip(ids(other), other, strict=True)) == sorted(zip(ids(bodies), bodies, strict=True))


def test_ids_depend_on_every_column():
    assert ids([b"x"], subject="UA") != ids([b"x"], subject="B6")
