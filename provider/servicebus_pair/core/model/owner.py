"""Check that a pair is used in the process and event loop that opened it.

From another loop, its connections would fail in ways that look like an outage; a forked process would write to its
parent's sockets.
"""

from __future__ import annotations

import asyncio
import os

from servicebus_pair.core.model.errors import PairClosedError


class ProcessLoopGuard:
    """Remembers the process and the running event loop of its creation."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.get_running_loop()

    def check(self, *, creating: bool = False) -> None:
        """Check that the caller runs in the same process and loop.

        :param creating: the caller only creates an object, which a thread without an event loop may do, too.
        :raises PairClosedError: another process or loop; the text says what to do instead.
        """
        process = os.getpid()
        if process != self._process:
            raise PairClosedError(
                f"the pair was opened in process {self._process} and is not open in process {process}: "
                "open a pair in each process, after the fork"
            )
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            loop = None
        if loop is not self._loop and not (creating and loop is None):
            here = "without one" if loop is None else "in another one"
            raise PairClosedError(
                f"the pair was opened in one event loop and is used {here}: open a pair in each loop, "
                "and from other threads submit the call to its loop (asyncio.run_coroutine_threadsafe)"
            )
