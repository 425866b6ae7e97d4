"""How many connections senders keep while they are unused (limits page, Connections)."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from servicebus_pair.core.sdk.idle_links import IdleLinks


@dataclass(eq=False)
class FakeLink:
    path: str
    is_connected: bool = False
    in_use: bool = False
    used_at: float = 0.0
    now: float = 0.0

    def seconds_unused(self) -> float:
        return self.now - self.used_at

    def disconnect(self) -> None:
        assert not self.in_use
        self.is_connected = False


@example(most=2, calls=[(number, "succeeds") for number in (0, 1, 2, 3, 0)])
@example(most=2, calls=[(0, "succeeds"), (1, "succeeds"), (0, "fails"), (1, "fails"), (2, "succeeds")])
@example(most=2, calls=[(0, "succeeds"), (1, "succeeds"), (0, "begins"), (2, "succeeds")])
@example(most=4, calls=[*((number, "succeeds") for number in range(4)), (0, "begins"), (1, "begins"), (4, "succeeds")])
@given(
    most=st.integers(1, 4),
    calls=st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["succeeds", "begins", "ends", "fails"])), max_size=60),
)
def test_as_many_idle_connections_as_allowed_are_kept_those_used_last(most: int, calls: list[tuple[int, str]]) -> None:
    links = [FakeLink(str(number)) for number in range(8)]
    bounded = IdleLinks("contoso", most)
    assert [bounded.crowded] == [False]
    order: list[FakeLink] = []
    for time, (number, event) in enumerate(calls):
        link = links[number]
        match event:
            case "begins":
                link.in_use = link.is_connected
            case "ends":
                link.in_use = False
            case "fails":
                link.in_use = link.is_connected = False
            case _:
                if not link.is_connected:
                    link.is_connected = True
                    bounded.connected(link)
                    assert bounded.crowded is (len(bounded._links) > most)
                link.in_use, link.used_at = False, time
                order = [*(each for each in order if each is not link), link]
                expected = [each for each in order if each.is_connected and not each.in_use][-most:]
                if bounded.crowded:
                    bounded.trim(link)
                assert [each for each in order if each.is_connected and not each.in_use] == expected
                assert bounded.crowded is (sum(each.is_connected for each in links) > most)


@pytest.mark.parametrize(("unused", "warnings"), [(0.0, 1), (10.0, 1), (10.1, 0)])
def test_connections_that_are_closed_soon_after_use_are_warned_of_once(
    unused: float, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    bounded = IdleLinks("contoso", 1)
    with caplog.at_level(logging.WARNING):
        for number in range(4):
            link = FakeLink(str(number), is_connected=True, now=unused)
            bounded.connected(link)
            if bounded.crowded:
                bounded.trim(link)
    warned = [record.getMessage() for record in caplog.records]
    assert len(warned) == warnings
    assert all(text.startswith("namespace=contoso: more than max_idle_connections=1 entities") for text in warned)
