"""Starts the process of the next test while the current one runs, so that a test need not wait for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from servicebus_emulator.testing.process import EmulatorProcess


class SpareProcesses:
    """Hands out running processes, one name after another; each is used by one test only.

    :param make: makes a process that serves a namespace of this name, without starting it.
    :param timeout: how long a start may take, in seconds.
    """

    def __init__(self, make: Callable[[str], EmulatorProcess], *, timeout: float) -> None:
        self._make = make
        self._timeout = timeout
        self._spares: dict[str, _Start] = {}

    def begin(self, name: str) -> None:
        """Begin to start a process, unless one of this name is there."""
        if name not in self._spares:
            self._spares[name] = _Start(self._make(name), name=name, timeout=self._timeout)

    def take(self, name: str, *, is_last: bool) -> EmulatorProcess:
        """Return a running process, and begin to start the next one unless this is the last.

        :raises RuntimeError: it did not start.
        """
        self.begin(name)
        process = self._spares.pop(name).finished()
        if not is_last:
            self.begin(name)
        return process

    def close(self) -> None:
        """Stop the processes that nobody took."""
        spares, self._spares = self._spares, {}
        for start in spares.values():
            start.cancel()


class _Start:
    """A process that is being started by a thread."""

    def __init__(self, process: EmulatorProcess, *, name: str, timeout: float) -> None:
        self._process = process
        self._name = name
        self._timeout = timeout
        self._error: RuntimeError | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finished(self) -> EmulatorProcess:
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._process

    def cancel(self) -> None:
        self._thread.join()
        self._process.stop()

    def _run(self) -> None:
        try:
            self._process.start(timeout=self._timeout)
            with suppress(OSError):
                # The first HTTP request takes longest: the process loads what serves it.
                self._process[self._name].health()
        except RuntimeError as error:
            self._error = error
