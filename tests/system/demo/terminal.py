"""What the demo says while it runs: one line at a time, each with the seconds since the start."""

from __future__ import annotations

import time

__all__ = ["Terminal"]

REPEAT_SECONDS = 5.0


class Terminal:
    """Prints lines, and progress no more often than every five seconds."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._last_progress = self._start

    @property
    def seconds(self) -> float:
        """Seconds since the demo began."""
        return time.monotonic() - self._start

    def say(self, text: str) -> None:
        """Print what happens now."""
        print(f"{self.seconds:6.1f} s  {text}", flush=True)

    def progress(self, text: str) -> None:
        """Print how far something has come, unless that was just done."""
        now = time.monotonic()
        if now - self._last_progress >= REPEAT_SECONDS:
            self._last_progress = now
            self.say(f"  {text}")
