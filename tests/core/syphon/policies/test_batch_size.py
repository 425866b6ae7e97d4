"""How many messages the next batch has (SPEC section 6)."""

from __future__ import annotations

import pytest

from servicebus_pair.core.syphon.policies.batch_size import next_batch_size


@pytest.mark.parametrize(
    ("size", "share", "then"),
    [
        (16, 0.0, 256),
        (16, 1 / 16, 256),  # sixteen times as many may take as long as a batch should
        (16, 0.063, 64),
        (16, 1.0, 64),
        (16, 1.01, 16),
        (8, 1.01, 16),  # what takes long however few messages there are
        (33, 1.01, 16),
        (34, 1.01, 17),
        (200, 2.0, 100),
        (999, 0.0, 1000),
    ],
)
def test_a_full_batch_is_followed_by_a_larger_one_if_that_takes_no_longer_than_it_should(
    size: int, share: float, then: int
) -> None:
    assert next_batch_size(size, limit=1000, full=True, share=share, shrink=False) == then


@pytest.mark.parametrize(("share", "then"), [(0.0, 200), (1.0, 200), (1.01, 100)])
def test_a_batch_that_was_not_full_is_followed_by_none_that_is_larger(share: float, then: int) -> None:
    assert next_batch_size(200, limit=1000, full=False, share=share, shrink=False) == then


@pytest.mark.parametrize(("size", "then"), [(200, 100), (5, 2), (3, 1), (1, 1)])
@pytest.mark.parametrize("full", [True, False])
def test_a_batch_that_was_too_large_for_its_locks_is_halved(size: int, then: int, full: bool) -> None:
    assert next_batch_size(size, limit=1000, full=full, share=0.0, shrink=True) == then


@pytest.mark.parametrize(("limit", "then"), [(1, 1), (0, 1), (20, 20)])
@pytest.mark.parametrize("share", [0.0, 2.0])
def test_no_batch_is_larger_than_the_limit_or_empty(limit: int, then: int, share: float) -> None:
    assert next_batch_size(40, limit=limit, full=True, share=share, shrink=False) == then
