"""SPEC section 4: a backlog queue is chosen at random and kept; one that fails leaves the rotation of all senders."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from servicebus_pair.core.rotation import BacklogRotation

QUEUES = tuple(f"contoso/x-servicebus-transfer/{index}" for index in range(5))


def rotation(seed: int = 0) -> BacklogRotation:
    return BacklogRotation(QUEUES, random=Random(seed))  # noqa: S311 - a choice of queues is no secret


def test_section_4_the_first_choice_is_random_over_all_queues() -> None:
    assert {rotation(seed).choose(None) for seed in range(100)} == set(QUEUES)


def test_section_4_the_choice_is_kept_while_the_queue_is_usable() -> None:
    shared = rotation()
    kept = shared.choose(None)
    assert kept is not None
    assert [shared.choose(kept) for _ in range(20)] == [kept] * 20


def test_section_4_a_queue_that_failed_is_chosen_by_no_sender() -> None:
    shared = rotation()
    assert shared.pull(QUEUES[2])
    assert shared.choose(QUEUES[2]) != QUEUES[2]
    assert QUEUES[2] not in {shared.choose(None) for _ in range(200)}


def test_section_4_another_senders_queue_is_untouched_by_a_pull() -> None:
    shared = rotation()
    shared.pull(QUEUES[2])
    assert shared.choose(QUEUES[3]) == QUEUES[3]


def test_section_4_a_queue_leaves_the_rotation_once() -> None:
    shared = rotation()
    assert shared.pull(QUEUES[0]) is True
    assert shared.pull(QUEUES[0]) is False
    assert shared.pull("no backlog queue") is False


def test_section_4_pulled_queues_are_tried_again_when_none_is_left() -> None:
    shared = rotation()
    for queue in QUEUES:
        shared.pull(queue)
    assert shared.choose(QUEUES[4]) == QUEUES[4]
    assert {shared.choose(None) for _ in range(200)} == set(QUEUES)


def test_section_4_one_send_tries_each_queue_once_and_then_ends() -> None:
    shared = rotation()
    tried: list[str] = []
    queue = shared.choose(None, without=set(tried))
    while queue is not None:
        tried.append(queue)
        shared.pull(queue)
        queue = shared.choose(queue, without=set(tried))
    assert sorted(tried) == sorted(QUEUES)


def test_section_4_a_send_that_tried_all_usable_queues_tries_the_pulled_ones() -> None:
    shared = rotation()
    for queue in QUEUES[1:]:
        shared.pull(queue)
    assert shared.choose(QUEUES[0]) == QUEUES[0]
    assert shared.choose(QUEUES[0], without={QUEUES[0]}) in QUEUES[1:]


def test_section_4_with_no_backlog_queue_there_is_nothing_to_choose() -> None:
    assert BacklogRotation((), random=Random(0)).choose(None) is None  # noqa: S311 - the same


@settings(max_examples=200)
@given(
    pulled=st.lists(st.sampled_from(QUEUES), max_size=8),
    without=st.sets(st.sampled_from(QUEUES)),
    kept=st.none() | st.sampled_from(QUEUES),
    seed=st.integers(0, 9),
)
def test_section_4_a_choice_is_always_one_that_this_send_has_not_tried(
    pulled: list[str], without: set[str], kept: str | None, seed: int
) -> None:
    shared = rotation(seed)
    for queue in pulled:
        shared.pull(queue)
    chosen = shared.choose(kept, without=without)
    if without == set(QUEUES):
        assert chosen is None
        return
    assert chosen in set(QUEUES) - without
    usable = set(QUEUES) - set(pulled)
    if usable - without:
        assert chosen in usable
