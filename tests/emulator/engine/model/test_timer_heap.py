"""The timer heap against a plain dictionary."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator.engine.model.timer_heap import TimerHeap

settings = st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 50)), max_size=60)


@given(settings, st.integers(0, 50))
def test_pop_due_returns_each_key_once_at_its_last_due_time(settings: list[tuple[int, int | None]], now: int):
    timers: TimerHeap[int] = TimerHeap()
    due: dict[int, int] = {}
    for key, at in settings:
        if at is None:
            timers.discard(key)
            due.pop(key, None)
        else:
            timers.set(key, at)
            due[key] = at
        assert timers.next_due() == min(due.values(), default=None)
    popped = timers.pop_due(now)
    assert sorted(popped) == sorted(key for key, at in due.items() if at <= now)
    assert [due[key] for key in popped] == sorted(due[key] for key in popped)
    assert timers.next_due() == min((at for at in due.values() if at > now), default=None)


def test_stale_entries_are_bounded():
    timers: TimerHeap[int] = TimerHeap()
    for at in range(100_000):
        timers.set(at % 10, at)
    assert len(timers) == 10
    assert timers._entries < 5_000
    assert timers.next_due() == 99_990
