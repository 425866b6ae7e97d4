"""A list of names that many processes add to at once, in a store that cannot list its keys or compare and set.

One key for all names would lose those of two who read it at the same time. So each name gets a key of its own, which
nobody else writes, and the keys can be found again, since they are numbered: two coordinates of a grid. Who takes which
cell is settled by reading and writing alone, with the splitters of Moir and Anderson, "Wait-Free Algorithms for Fast,
Long-Lived Renaming" (1995), after Lamport: whoever enters a cell says so, then closes it, and takes it if it was still
open and nobody else has entered meanwhile. At most one takes it; the others go on, to the right or down. Without a
contest the grid is one row.
"""

from __future__ import annotations

import logging
import uuid
from typing import Any, Final, Protocol

__all__ = ["Registers", "Roll"]

_log = logging.getLogger(__name__)
_MOST_CELLS: Final = 10_000


class Registers(Protocol):
    """Values by key: a reader gets what was written last; ``None`` when nothing was, or it cannot be read."""

    async def get(self, key: str) -> Any:
        """Return the value of ``key``, or ``None``."""

    async def set(self, key: str, value: Any) -> None:
        """Keep ``value`` under ``key``."""


class Roll:
    """Names that were ever added, whoever added them; none is taken off.

    No name is lost to those who add at the same time, and a name can be added by many. Adding a
    name again costs one reading; the first time costs one for each name that is there already.

    :param prefix: of all keys.
    """

    def __init__(self, registers: Registers, *, prefix: str) -> None:
        self._registers = registers
        self._prefix = prefix
        # Cells left of this one are closed for ever: a walk that was cut short goes on here.
        self._column = 0

    async def add(self, name: str) -> None:
        """Put ``name`` down unless it is there; it is left out, until it is added again, while the store fails."""
        listed = f"{self._prefix}listed/{name}"
        if await self._registers.get(listed) is not None:
            return
        cell = await self._take_cell()
        if cell is not None:
            await self._registers.set(f"{cell}/name", name)
            await self._registers.set(listed, 1)

    async def names(self) -> set[str]:
        """Return all names that were put down: three readings for each."""
        found: set[str] = set()
        seen = waiting = {(0, 0)}
        while waiting:
            row, column = waiting.pop()
            cell = self._cell(row, column)
            if await self._registers.get(f"{cell}/closed") is None:
                continue
            name = await self._registers.get(f"{cell}/name")
            if isinstance(name, str):
                found.add(name)
            new = {(row, column + 1), (row + 1, column)} - seen
            seen, waiting = seen | new, waiting | new
        return found

    async def _take_cell(self) -> str | None:
        token, row, column = uuid.uuid4().hex, 0, self._column
        for _ in range(_MOST_CELLS):
            cell = self._cell(row, column)
            if await self._registers.get(f"{cell}/closed") is not None:
                column += 1
                self._column = column if row == 0 else self._column
                continue
            await self._registers.set(f"{cell}/entered", token)
            if await self._registers.get(f"{cell}/closed") is not None:
                column += 1
                continue
            await self._registers.set(f"{cell}/closed", 1)
            entered = await self._registers.get(f"{cell}/entered")
            if entered is None:
                return None  # the store does not answer: what it keeps is soft
            if entered == token:
                return cell
            row += 1
        _log.warning("%s: more than %d names: one is left out", self._prefix, _MOST_CELLS)
        return None

    def _cell(self, row: int, column: int) -> str:
        return f"{self._prefix}{row}.{column}"
