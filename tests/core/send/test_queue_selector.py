"""Selection of the backlog queue (SPEC section 4)."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.send.queue_selector import BacklogHealth, QueueSelector
from tests.core.support.manual_clock import START, ManualClock
from tests.examples import examples

QUEUES = tuple(f"contoso/x-servicebus-transfer/{index}" for index in range(5))


def selector_of(seed: int = 0) -> QueueSelector:
    return QueueSelector(QUEUES, random=Random(seed))  # noqa: S311 - not used for security


def test_section_4_the_first_choice_is_random_over_all_queues() -> None:
    assert {selector_of(seed).select(None) for seed in range(100)} == set(QUEUES)


def test_section_4_a_queue_is_removed_once() -> None:
    selector = selector_of()
    assert not selector.unresponsive
    assert selector.remove(QUEUES[0]) is True
    assert [selector.is_removed(queue) for queue in QUEUES[:2]] == [True, False]
    assert selector.remove(QUEUES[0]) is False
    assert selector.remove("no backlog queue") is False


def test_section_4_removed_queues_become_usable_when_none_is_left() -> None:
    selector = selector_of()
    for queue in QUEUES:
        selector.remove(queue)
    assert selector.select(QUEUES[4]) == QUEUES[4]
    assert {selector.select(None) for _ in range(200)} == set(QUEUES)


def test_section_4_one_send_tries_each_queue_once() -> None:
    selector = selector_of()
    tried: list[str] = []
    queue = selector.select(None, exclude=set(tried))
    while queue is not None:
        tried.append(queue)
        selector.remove(queue)
        queue = selector.select(queue, exclude=set(tried))
    assert sorted(tried) == sorted(QUEUES)


def test_section_4_a_send_that_tried_all_usable_queues_tries_removed_ones() -> None:
    selector = selector_of()
    for queue in QUEUES[1:]:
        selector.remove(queue)
    assert selector.select(QUEUES[0]) == QUEUES[0]
    assert selector.select(QUEUES[0], exclude={QUEUES[0]}) in QUEUES[1:]


def test_section_4_without_backlog_queues_none_is_selected() -> None:
    assert QueueSelector((), random=Random(0)).select(None) is None  # noqa: S311 - the same


@examples(200)
@given(
    removed=st.lists(st.sampled_from(QUEUES), max_size=8),
    exclude=st.sets(st.sampled_from(QUEUES)),
    preferred=st.none() | st.sampled_from(QUEUES),
    seed=st.integers(0, 9),
)
def test_section_4_an_excluded_queue_is_never_selected(
    removed: list[str], exclude: set[str], preferred: str | None, seed: int
) -> None:
    selector = selector_of(seed)
    for queue in removed:
        selector.remove(queue)
    chosen = selector.select(preferred, exclude=exclude)
    if exclude == set(QUEUES):
        assert chosen is None
        return
    assert chosen in set(QUEUES) - exclude
    usable = set(QUEUES) - set(removed) or set(QUEUES)
    if preferred in usable - exclude:
        assert chosen == preferred
    elif usable - exclude:
        assert chosen in usable


def test_section_10_the_backlog_is_down_from_a_failure_until_something_works() -> None:
    health = BacklogHealth(clock=ManualClock(), retry_seconds=60)
    seen = [health.is_down]
    health.failed()
    seen.append(health.is_down)
    health.worked()
    seen.append(health.is_down)
    assert seen == [False, True, False]


def test_section_10_one_caller_tries_it_once_in_every_interval() -> None:
    clock = ManualClock()
    health = BacklogHealth(clock=clock, retry_seconds=60)
    assert not health.claim_trial(), "it is not down"
    health.failed()
    assert not health.claim_trial()
    clock.time = START + 59.9
    assert not health.claim_trial()
    clock.time = START + 60
    assert [health.claim_trial(), health.claim_trial()] == [True, False]
    clock.time = START + 120
    assert health.claim_trial()
    assert health.is_down, "a trial alone proves nothing"
