"""The spool of a history: files in memory, which all processes see and which survive them.

A call takes time, may fail before or after it took effect, or hang, and may be the last one of its process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import Any, TypeVar
from unittest.mock import patch
from uuid import UUID

from servicebus_pair.core.model.daemon_thread import HANG_SECONDS
from servicebus_pair.core.spool import claims, spool
from servicebus_pair.core.spool.spool_file import decode_file
from servicebus_pair.core.spool.storage import MAX_FILE_BYTES, StoredFile
from tests.simulated_time import current_process
from tests.simulation.clockwork import Clockwork
from tests.simulation.nodes import Machine

ResultT = TypeVar("ResultT")
_MESSAGES = "messages/"


class Files:
    """A ``SpoolStorage``, and what a ``DaemonThread`` does for it.

    :param on_set_aside: receives the names of messages that are set aside.
    :ivar delay: the longest duration of a call, in seconds.
    :ivar failing: calls fail, after they took effect or before.
    :ivar hanging: calls do not end, and take effect some time later.
    """

    place = "in memory"
    listing_seconds = 0.0

    def __init__(self, loop: Clockwork, random: Random, *, on_set_aside: Callable[[list[str]], None]) -> None:
        self.delay = 0.01
        self.failing = False
        self.hanging = False
        self._loop = loop
        self._random = random
        self._on_set_aside = on_set_aside
        self._contents: dict[str, tuple[bytes, float]] = {}

    def create(self, name: str, content: bytes) -> None:
        """Write a new file."""
        if name in self._contents:
            raise FileExistsError(name)
        self.replace(name, content)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file in place of one of this name."""
        self._contents[name] = content, self._loop.wall_clock()
        if name.startswith(spool.SET_ASIDE) and not name.endswith(".reason"):
            self._on_set_aside(_names(content))

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        """Return the content of a file."""
        if name not in self._contents:
            raise FileNotFoundError(name)
        assert len(self._contents[name][0]) <= limit
        return self._contents[name][0]

    def delete(self, name: str) -> None:
        """Delete a file."""
        self._contents.pop(name, None)

    def move(self, name: str, target: str) -> None:
        """Give a file another name."""
        if name in self._contents:
            self.replace(target, self._contents.pop(name)[0])

    def list(self, folder: str = "") -> list[StoredFile]:
        """Return the files below a folder in the order of their names."""
        return [
            StoredFile(name, len(content), modified_at)
            for name, (content, modified_at) in sorted(self._contents.items())
            if name.startswith(f"{folder}/" if folder else "")
        ]

    def walk(self, folder: str = "") -> Iterator[StoredFile]:
        """Yield the files below a folder."""
        yield from self.list(folder)

    def names(self, folder: str) -> Sequence[str]:
        """Return the names of the files in a folder."""
        return [each.name.rpartition("/")[2] for each in self.list(folder)]

    def problem(self) -> None:
        """Nothing is wrong."""

    def submit(self, function: Callable[..., Any]) -> None:
        """Start a call as ``DaemonThread`` does; only looks at the storage are made so, and take no time."""
        function()

    def waiting(self) -> Sequence[str]:
        """Return the names of the messages that wait to be delivered."""
        return [each for name in self._contents if name.startswith(_MESSAGES) for each in _names(self.read(name))]

    def mend(self) -> None:
        """Let calls be quick and succeed again."""
        self.delay, self.failing, self.hanging = 0.01, False, False

    @contextmanager
    def replaced_storage(self) -> Iterator[None]:
        """Let pairs use these files, with names that are the same on each run."""
        with (
            patch.object(spool, "open_storage", lambda _: self),
            patch.object(spool, "DaemonThread", lambda _: self),
            patch.object(claims, "DaemonThread", lambda _: self),
            patch("uuid.uuid4", lambda: UUID(int=self._random.getrandbits(128), version=4)),
        ):
            yield

    async def call(self, function: Callable[..., ResultT], *given: Any, more_seconds: float = 0.0) -> ResultT:
        """Call a function as ``DaemonThread`` does."""
        del more_seconds
        await self._end_if_killed()
        await asyncio.sleep(self._random.uniform(0, self.delay))
        if self.hanging:
            late = self._random.uniform(HANG_SECONDS, 300)
            self._loop.call_later(late, _quietly, function, *given, context=self._loop.world)
            await asyncio.sleep(HANG_SECONDS)
            raise TimeoutError("the storage hangs")
        if self.failing and self._random.random() < 0.5:
            raise OSError("the storage failed")
        result = function(*given)
        await self._end_if_killed()
        await asyncio.sleep(self._random.uniform(0, self.delay))
        if self.failing:
            raise OSError("the storage failed after it was done")
        return result

    async def _end_if_killed(self) -> None:
        process = current_process()
        if isinstance(process, Machine) and process.burn_down():
            await self._loop.create_future()


def _names(content: bytes) -> list[str]:
    messages = decode_file(content, key=None).messages
    return [str(each.properties.message_id) for each in messages if each.properties is not None]


def _quietly(function: Callable[..., Any], *given: Any) -> None:
    """Make a call whose caller has given up."""
    try:
        function(*given)
    except OSError:
        return
