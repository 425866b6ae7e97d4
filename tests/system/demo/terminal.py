"""Prints the demo's progress, with the seconds since the start."""

from __future__ import annotations

import time

PROGRESS_INTERVAL = 5.0


class Terminal:
    """Prints messages, and progress at most every five seconds."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last_progress = self._start

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._start

    def say(self, text: str) -> None:
        print(f"{self.seconds:6.1f} s  {text}", flush=True)

    def progress(self, text: str) -> None:
        now = time.monotonic()
        if now - self._last_progress >= PROGRESS_INTERVAL:
            self._last_progress = now
            self.say(f"  {text}")
