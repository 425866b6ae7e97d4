"""A set of names in a key-value store that has neither compare-and-set nor a way to list its keys.

One key that holds all names would lose updates: two writers read it at the same time, and the second overwrites the
first. So every name gets a numbered slot that only one writer ever fills. Writers claim a slot with reads and writes
alone, by the splitter of Moir and Anderson, "Wait-Free Algorithms for Fast, Long-Lived Renaming" (1995):

1. write your token into ``entrant``, unless the slot is closed;
2. if the slot is still open, close it;
3. if ``entrant`` still holds your token, the slot is yours; otherwise try the next one.

At most one writer gets past step 3. Writers that contend may all lose, which costs an empty slot and another attempt.
Every writer moves on from closed slots only, so a reader that scans up to the first open slot finds all names.
"""

from __future__ import annotations

import uuid
from typing import Any, Final, Protocol

from servicebus_pair.core.model import get_logger

_log = get_logger(__name__)
_MAX_SLOTS: Final = 10_000


class KeyValueStore(Protocol):
    """The store: a read returns the last value written, or ``None`` when there is none or it cannot be read."""

    async def get(self, key: str) -> Any:
        """Return the value of ``key``, or ``None``."""

    async def set(self, key: str, value: Any) -> None:
        """Store ``value`` under ``key``."""


class NameIndex:
    """A set of names that any number of processes may add to at the same time; names are never removed.

    Adding a known name costs one read. Adding a new one costs a read for each slot in use, because the first open
    slot must be found.

    :param prefix: of all keys.
    """

    def __init__(self, store: KeyValueStore, *, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._first_open = 0  # slots never open again, so an interrupted search continues here

    async def add(self, name: str) -> None:
        """Add ``name`` unless it is there; while the store fails this has no effect, and a later call repeats it."""
        listed = f"{self._prefix}listed/{name}"
        if await self._store.get(listed) is not None:
            return
        slot = await self._claim_slot()
        if slot is not None:
            await self._store.set(f"{slot}/name", name)
            await self._store.set(listed, 1)

    async def names(self) -> set[str]:
        """Return all names: two reads for each slot in use."""
        found: set[str] = set()
        number = 0
        while await self._store.get(f"{self._slot(number)}/closed") is not None:
            name = await self._store.get(f"{self._slot(number)}/name")
            if isinstance(name, str):
                found.add(name)
            number += 1
        return found

    async def _claim_slot(self) -> str | None:
        token = uuid.uuid4().hex
        for number in range(self._first_open, _MAX_SLOTS):
            slot = self._slot(number)
            if await self._store.get(f"{slot}/closed") is None:
                await self._store.set(f"{slot}/entrant", token)
                if await self._store.get(f"{slot}/closed") is None:
                    await self._store.set(f"{slot}/closed", 1)
                    entrant = await self._store.get(f"{slot}/entrant")
                    if entrant is None:
                        return None  # the store does not keep what is written
                    if entrant == token:
                        return slot
            # Not "+= 1": other coroutines may search with the same object.
            self._first_open = max(self._first_open, number + 1)
        _log.warning("%s: all %d slots are taken: a name is left out", self._prefix, _MAX_SLOTS)
        return None

    def _slot(self, number: int) -> str:
        return f"{self._prefix}{number}"
