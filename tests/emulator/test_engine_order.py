"""What orders the messages of a queue: who is next, and what is due when, beside a model that sorts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator.engine.agenda import Agenda
from servicebus_emulator.engine.lines import Line

steps = st.lists(st.tuples(st.sampled_from(["arrive", "return", "take", "leave"]), st.integers(1, 4)), max_size=60)
settings = st.lists(st.tuples(st.integers(0, 9), st.none() | st.integers(0, 50)), max_size=60)


@given(steps)
def test_the_lowest_number_is_next_whoever_comes_back_or_leaves(steps: list[tuple[str, int]]):
    line, waiting, away, last = Line(), set[int](), list[int](), 0
    for step, amount in steps:
        if step == "arrive":
            numbers = list(range(last + 1, last + 1 + amount))
            line.extend(numbers)
            waiting.update(numbers)
            last += amount
        elif step == "return" and len(away) > 0:
            number = away.pop(amount % len(away))
            line.push(number)
            waiting.add(number)
        elif step == "take":
            number_or_none = line.pop()
            assert number_or_none == min(waiting, default=None)
            if number_or_none is not None:
                waiting.remove(number_or_none)
                away.append(number_or_none)
        elif step == "leave" and len(waiting) > 0:
            number = sorted(waiting)[amount % len(waiting)]
            line.discard(number)
            waiting.remove(number)
        assert len(line) == len(waiting)
    assert [line.pop() for _ in sorted(waiting)] == sorted(waiting)
    assert line.pop() is None


@given(settings, st.integers(0, 50))
def test_what_was_set_last_is_due_and_nothing_twice(settings: list[tuple[int, int | None]], now: int):
    agenda: Agenda[int] = Agenda()
    due: dict[int, int] = {}
    for key, at in settings:
        if at is None:
            agenda.discard(key)
            due.pop(key, None)
        else:
            agenda.set(key, at)
            due[key] = at
        assert agenda.next_due() == min(due.values(), default=None)
    popped = agenda.pop_due(now)
    assert sorted(popped) == sorted(key for key, at in due.items() if at <= now)
    assert [due[key] for key in popped] == sorted(due[key] for key in popped)
    assert agenda.next_due() == min((at for at in due.values() if at > now), default=None)


def test_an_agenda_whose_keys_are_set_again_and_again_stays_small():
    agenda: Agenda[int] = Agenda()
    for at in range(100_000):
        agenda.set(at % 10, at)
    assert len(agenda) == 10
    assert agenda._entries < 5_000
    assert agenda.next_due() == 99_990
