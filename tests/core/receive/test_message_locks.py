"""Locks of received messages are renewed after half of their time, until the messages are settled."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from servicebus_pair.core.model.errors import LockLostError, ServerBusyError, ServiceError
from servicebus_pair.core.receive.message_locks import MessageLocks


class Locked:
    """A message whose lock lasts ``seconds`` from now on, or has no known end."""

    def __init__(self, seconds: float | None) -> None:
        self.seconds = seconds

    @property
    def locked_until(self) -> datetime | None:
        clock = asyncio.get_running_loop().time
        return None if self.seconds is None else datetime.fromtimestamp(clock() + self.seconds, UTC)


class LoopClock:
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        assert seconds >= 0
        await asyncio.sleep(seconds)


class Keeping:
    """Locks that are kept.

    :ivar renewals: when, and the messages.
    :ivar failures: of messages, by the message.
    :ivar seconds: how long a renewal takes.
    """

    def __init__(self) -> None:
        self.renewals: list[tuple[float, list[Any]]] = []
        self.failures: dict[Any, ServiceError] = {}
        self.seconds = 0.0
        self.locks = MessageLocks(self._renew, entity="flights", clock=LoopClock())
        self._began = asyncio.get_running_loop().time()

    async def _renew(self, messages: Sequence[Any]) -> Sequence[ServiceError | None]:
        self.renewals.append((round(asyncio.get_running_loop().time() - self._began, 1), list(messages)))
        await asyncio.sleep(self.seconds)
        return [self.failures.get(message) for message in messages]

    async def keep(self, seconds: float) -> list[float]:
        """Keep the locks for some time; return when locks were renewed."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.locks.keep(), seconds)
        return [at for at, _ in self.renewals]


pytestmark = pytest.mark.simulated


@pytest.mark.parametrize(
    ("lock", "renewals"),
    [(10.0, [5, 10, 15, 20]), (60.0, [20]), (38.0, [19]), (0.5, [*range(1, 23)]), (None, [*range(1, 23)])],
)
async def test_a_lock_is_renewed_after_half_of_its_time_after_1_to_20_seconds(
    lock: float | None, renewals: list[float]
) -> None:
    keeping, message = Keeping(), Locked(lock)
    keeping.locks.hold([message])  # type: ignore[list-item]
    assert await keeping.keep(22.5) == pytest.approx(renewals, abs=0.1)


async def test_only_locks_that_are_due_are_renewed_and_settled_ones_no_more() -> None:
    keeping, quick, slow, settled = Keeping(), Locked(10), Locked(24), Locked(10)
    held: list[Any] = [quick, slow, settled]
    keeping.locks.hold(held)
    assert (keeping.locks.held(), len(keeping.locks)) == (held, 3)
    keeping.locks.drop([settled])  # type: ignore[list-item]
    keeping.locks.drop([settled])  # type: ignore[list-item]
    await keeping.keep(13)
    assert keeping.renewals == [(5, [quick]), (10, [quick]), (12, [slow])]
    assert len(keeping.locks) == 2


async def test_a_lock_that_becomes_due_during_a_renewal_is_renewed_right_after_it() -> None:
    keeping, first, second = Keeping(), Locked(10), Locked(12)
    keeping.seconds = 2.0
    keeping.locks.hold([first, second])  # type: ignore[list-item]
    await keeping.keep(8)
    assert keeping.renewals == [(5, [first]), (7, [second])]


async def test_a_message_whose_lock_is_lost_is_held_no_longer_and_another_failure_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    keeping, lost, busy = Keeping(), Locked(10), Locked(10)
    keeping.locks.hold([lost, busy])  # type: ignore[list-item]
    keeping.failures = {lost: LockLostError("gone"), busy: ServerBusyError("busy")}
    await keeping.keep(11)
    assert keeping.renewals == [(5, [lost, busy]), (10, [busy])]
    assert [each.getMessage() for each in caplog.records] == ["entity=flights: locks lost=1: these messages come again"]


async def test_locks_that_come_later_are_kept_too() -> None:
    keeping = Keeping()
    task = asyncio.create_task(keeping.keep(12))
    await asyncio.sleep(3)
    first, second = Locked(10), Locked(10)
    keeping.locks.hold([first])  # type: ignore[list-item]
    await asyncio.sleep(6)
    keeping.locks.drop([first])  # type: ignore[list-item]
    keeping.locks.hold([second])  # type: ignore[list-item]
    await task
    assert keeping.renewals == [(8, [first])]
