"""How many messages a receiver may ask for, so that those that arrive take a limited number of bytes. Pure."""

from __future__ import annotations

from typing import Final

# A size that was seen once counts less with every receive.
_DECAY: Final = 0.75


class ByteWindow:
    """Credit is counted in messages, memory in bytes: so messages count as large as the largest seen recently.

    Before any was seen, one is asked for. Messages that are larger than those before them exceed the limit by what is
    on its way already.

    :param max_bytes: of messages that have arrived and were not taken.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._largest = 0.0

    def begin(self) -> None:
        """Begin another receive."""
        self._largest *= _DECAY

    def add(self, size: int) -> None:
        """Count a message that has arrived."""
        self._bytes += size
        self._largest = max(self._largest, size)

    def remove(self, size: int) -> None:
        """Count a message that was taken."""
        self._bytes -= size

    def credit(self, wanted: int) -> int:
        """Return how many of ``wanted`` messages may be under way."""
        if not self._largest:
            return min(wanted, 1)
        room = int((self._max_bytes - self._bytes) / self._largest)
        return max(0, min(wanted, room if self._bytes else max(1, room)))
