"""Whatever fails while a spool is written or emptied, nothing that was confirmed is missing (SPEC section 10).

One history is repeated for every kind of fault at every call to the storage: batches are written, a drain meets an
outage and a refused message, and two other drains end the work a minute later.
"""

from __future__ import annotations

import asyncio
import errno
import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from servicebus_pair.core.model.errors import SpoolError, UnreachableError
from servicebus_pair.core.protocol.amqp_message import new_message
from servicebus_pair.core.spool import claims, spool
from servicebus_pair.core.spool.claims import CLAIM_SECONDS, Claims
from servicebus_pair.core.spool.drain import empty_spool
from servicebus_pair.core.spool.location import open_storage
from servicebus_pair.core.spool.spool import Spool
from servicebus_pair.core.spool.spool_file import decode_file
from servicebus_pair.core.spool.storage import MAX_FILE_BYTES, StoredFile, StreamedStorage
from tests.core.spool.test_drain import Service, Waiting
from tests.core.support.manual_clock import ManualClock


class Killed(BaseException):
    """The process ended."""


class Inline:
    """A thread whose calls take no time, so that each run of a history makes the same calls in the same order."""

    def __init__(self, name: str) -> None:
        del name

    async def call(self, function: Callable[..., Any], *args: Any, more_seconds: float = 0.0) -> Any:
        del more_seconds
        await asyncio.sleep(0)
        return function(*args)


# What happens to the call: whether it takes effect, and what its caller learns.
FAULTS = {
    "killed before": (0, Killed()),
    "killed after": (1, Killed()),
    "disk full": (0, OSError(errno.ENOSPC, "No space left on device")),
    "read-only": (0, OSError(errno.EROFS, "Read-only file system")),
    "input/output error after the effect": (1, OSError(errno.EIO, "Input/output error")),
    "no answer in time, and the effect comes later": (-1, TimeoutError("the store does not answer")),
    "repeated by its library": (2, None),
}


class FaultyStorage:
    """A storage of which one call has a fault; a process that was killed makes no more calls."""

    def __init__(self, storage: StreamedStorage, fault: str, at: int) -> None:
        self.place, self.listing_seconds = storage.place, storage.listing_seconds
        self.late: list[Callable[[], Any]] = []
        self.calls = 0
        self._storage, self._at = storage, at
        self._times, self._error = FAULTS[fault]

    def _call(self, name: str, *args: Any) -> Any:
        number, self.calls = self.calls, self.calls + 1
        call = getattr(self._storage, name)
        if number > self._at and isinstance(self._error, Killed):
            raise self._error
        if number != self._at:
            return call(*args)
        if self._times < 0:
            self.late.append(lambda: call(*args))
        result = None
        for _ in range(self._times):
            result = call(*args)
        if self._error is not None:
            raise self._error
        return result

    def create(self, name: str, content: bytes) -> None:
        self._call("create", name, content)

    def replace(self, name: str, content: bytes) -> None:
        self._call("replace", name, content)

    def read(self, name: str, limit: int = MAX_FILE_BYTES) -> bytes:
        content: bytes = self._call("read", name, limit)
        return content

    def open(self, name: str) -> AbstractContextManager[BinaryIO]:
        file: AbstractContextManager[BinaryIO] = self._call("open", name)
        return file

    def delete(self, name: str) -> None:
        self._call("delete", name)

    def move(self, name: str, target: str) -> None:
        self._call("move", name, target)

    def list(self, folder: str = "") -> Sequence[StoredFile]:
        files: Sequence[StoredFile] = self._call("list", folder)
        return files

    def walk(self, folder: str = "") -> Iterator[StoredFile]:
        yield from self.list(folder)

    def names(self, folder: str) -> Sequence[str]:
        names: Sequence[str] = self._call("names", folder)
        return names

    def problem(self) -> str | None:
        return self._storage.problem()


class History:
    """One run: a process with a fault, and then two without."""

    def __init__(self, storage: StreamedStorage, fault: str, at: int) -> None:
        self.storage = storage
        self.faulty = FaultyStorage(storage, fault, at)
        self.clock = ManualClock(1_700_000_000.0)
        self.service = Service()
        self.written: list[str] = []
        self.confirmed: set[str] = set()

    async def run(self) -> None:
        with suppress(Killed):
            await self._write_and_drain()
        self.service.failure_of = lambda *_: None
        self.clock.time += CLAIM_SECONDS
        for effect in self.faulty.late:
            # Of a call that its process gave up; what it finds changed meanwhile, it cannot undo.
            with suppress(OSError):
                effect()
        for _ in range(2):
            await asyncio.gather(*(self._drain(self.storage, owner) for owner in ("two", "three")))
            self.clock.time += CLAIM_SECONDS

    async def _write_and_drain(self) -> None:
        written = Spool(self.faulty, clock=self.clock, max_bytes=1_000_000)
        for number in range(3):
            for entity in ("flights", "gates"):
                texts = [f"{entity} {number}{letter}" for letter in "ab"]
                self.written += texts
                try:
                    await written.write(entity, [new_message(text) for text in texts])
                except SpoolError:
                    continue  # the caller keeps them
                self.confirmed |= set(texts)
        outage = UnreachableError("down")
        self.service.failure_of = lambda _, text: outage if text == "flights 1b" else None
        await self._drain(self.faulty, "one")

    async def _drain(self, storage: StreamedStorage, owner: str) -> None:
        emptied = Spool(storage, clock=self.clock, max_bytes=1_000_000)
        held = Claims(storage, clock=Waiting(self.clock.time), owner=owner)
        with suppress(SpoolError):  # it cannot be listed
            await empty_spool(emptied, held, self.service.deliver)

    def check(self) -> None:
        delivered = [text for _, text in self.service.delivered]
        assert self.confirmed <= set(delivered)
        assert set(delivered) <= set(self.written)
        first = list(dict.fromkeys(delivered))
        for entity in ("flights", "gates"):
            arrived = [text for text in first if text.startswith(entity) and text in self.confirmed]
            assert arrived == sorted(arrived), "in the order of writing"
        left = [each.name for each in self.storage.list()]
        assert [name for name in left if name.startswith("messages/")] == []
        for name in left:
            if name.endswith(".spool"):
                decode_file(self.storage.read(name))


@pytest.mark.parametrize("store", ["folder", "object store"])
@pytest.mark.parametrize("fault", FAULTS)
async def test_a_fault_at_any_call_loses_nothing_that_was_confirmed(
    fault: str, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (spool, claims):
        monkeypatch.setattr(module, "DaemonThread", Inline)
    # What reaches the disk and when is tested with the folder itself; here it would only take time.
    monkeypatch.setattr(os, "fsync", lambda _: None)
    locations = {"folder": str(tmp_path), "object store": f"memory://{uuid.uuid4().hex}"}
    for at in range(200):
        history = History(open_storage(f"{locations[store]}/{at}"), fault, at)
        await history.run()
        history.check()
        if fault == "repeated by its library" or history.faulty.calls <= at:
            assert history.confirmed == set(history.written)
        if history.faulty.calls <= at:
            assert at > 25, "the table covers the whole history"
            return
    pytest.fail("the history did not end")
