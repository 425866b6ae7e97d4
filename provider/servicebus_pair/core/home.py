"""Where a pair lives: the process and the event loop that opened it.

Its connections, locks and tasks belong to them. Used from another loop it would fail in ways that look
like an outage, and a forked process would speak on its parent's sockets.
"""

from __future__ import annotations

import asyncio
import os

from servicebus_pair.core.errors import PairClosedError

__all__ = ["Home"]


class Home:
    """The process and the running loop at the time it was made."""

    def __init__(self) -> None:
        self._process = os.getpid()
        self._loop = asyncio.get_running_loop()

    def check(self, *, making: bool = False) -> None:
        """Do nothing at home.

        :param making: something is only made, to be used in a loop later: a thread without one may do that.
        :raises PairClosedError: elsewhere, with what to do instead.
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
        if loop is not self._loop and not (making and loop is None):
            here = "without one" if loop is None else "in another one"
            raise PairClosedError(
                f"the pair was opened in one event loop and is used {here}: open a pair in each loop, "
                "and from other threads hand the call to its loop (asyncio.run_coroutine_threadsafe)"
            )
