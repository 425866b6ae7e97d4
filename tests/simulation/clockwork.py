"""An event loop without sockets in simulated time, whose order of events depends on nothing but the program.

Sets of tasks and futures are iterated in the order of their hashes. The default hash is an address, which differs from
run to run; here it is a number in order of creation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextvars import Context, copy_context
from itertools import count
from typing import Any, Final

from tests.simulated_time import NoSockets, SimulatedLoop, current_process

__all__ = ["Clockwork"]

# The wall clock at the beginning of every history.
_BEGINNING: Final = 1_800_000_000.0


class _Task(asyncio.Task[Any]):
    def __init__(self, *given: Any, number: int, **named: Any) -> None:
        self._number = number
        super().__init__(*given, **named)

    def __hash__(self) -> int:
        return self._number


class _Future(asyncio.Future[Any]):
    def __init__(self, *, loop: Clockwork, number: int) -> None:
        self._number = number
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        return self._number


class Clockwork(SimulatedLoop):
    """The event loop of one history.

    :ivar world: the context of what happens outside of all processes.
    """

    def __init__(self) -> None:
        super().__init__(NoSockets())
        self._started = _BEGINNING
        self._numbers = count(1)
        self.world = copy_context()
        self.set_task_factory(self._new_task)  # type: ignore[arg-type]

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self, number=next(self._numbers))

    def _new_task(
        self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], context: Context | None = None
    ) -> asyncio.Task[Any]:
        task = _Task(work, loop=loop, context=context, number=next(self._numbers))
        owner = current_process(context)
        if owner is not None:
            owner.add_task(task)
        return task
