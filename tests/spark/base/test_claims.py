"""Claims name exactly the messages of a micro-batch, and tasks read each of them once."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.base.claims import (
    claims_from_offset,
    claims_to_offset,
    count,
    distribute,
    merge_claims,
    numbers_of,
)

NUMBERS = st.lists(st.integers(1, 60) | st.integers(1, 2**63 - 1), min_size=1, max_size=40)
QUEUE = st.tuples(st.sampled_from(["flights", "flights/$DeadLetterQueue"]), st.just(""))
SESSION = st.tuples(st.just("orders"), st.text(max_size=4))


@given(st.dictionaries(QUEUE, NUMBERS) | st.dictionaries(SESSION, NUMBERS), st.integers(1, 5))
def test_claims_survive_the_checkpoint_and_tasks_share_them(
    numbers: dict[tuple[str, str], list[int]], tasks: int
) -> None:
    claims = merge_claims(numbers)
    assert claims_from_offset(json.loads(json.dumps(claims_to_offset(claims)))) == claims
    parts = distribute(claims, tasks)
    assert len(parts) <= tasks * len({address for address, _ in claims})
    read = [(key, number) for part in parts for key, ranges in part.items() for number in numbers_of(ranges)]
    assert sorted(read) == sorted((key, number) for key, each in numbers.items() for number in set(each))
    keys = [key for part in parts for key in part if key[1]]
    assert len(keys) == len(set(keys)), "a session is read by one task"


def test_tasks_read_about_as_much_as_each_other() -> None:
    claims = merge_claims({("flights", ""): [*range(1, 1001), *range(5001, 5012)]})
    assert claims_to_offset(claims) == {"claims": {"flights": {"": "1-1000,5001-5011"}}}
    assert [count(ranges) for part in distribute(claims, 4) for ranges in part.values()] == [253, 253, 253, 252]
    sessions = merge_claims({("orders", str(size)): range(1, size + 1) for size in (6, 5, 4, 3, 2, 1)})
    assert [sum(map(count, part.values())) for part in distribute(sessions, 3)] == [7, 7, 7]


@pytest.mark.parametrize(
    "offset",
    [
        {"flights": 120},
        {"claims": 3},
        *({"claims": {"q": {"": each}}} for each in ("x", "5-1", "0", 7, "1,1", "1-3,2")),
    ],
)
def test_checkpoint_of_another_mode_is_refused(offset: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError, match="mode=peek; start with a new checkpoint"):
        claims_from_offset(offset)


def test_a_checkpoint_of_a_few_bytes_makes_no_stream_count_for_ever() -> None:
    with pytest.raises(ConfigurationError, match="more than 10000000 claims of one batch"):
        claims_from_offset({"claims": {"flights": {"": f"1-{2**62}"}}})
