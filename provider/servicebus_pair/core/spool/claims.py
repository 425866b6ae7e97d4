"""Claims: one process at a time empties the spool of an entity, so that its order is kept.

A claim is a file that is created exclusively, and renewed while it is used. One that was not renewed for long belongs
to a process that has ended. It is taken over by the process that creates its successor, a file named after its content,
which exists while the claim is replaced, and is taken over likewise if that process ends meanwhile. If clocks differ by
more than that, or a store has no conditional writes, two processes may hold a claim: messages are then delivered twice,
never lost.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Final

from servicebus_pair.core.model.daemon_thread import DaemonThread
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.regular_files import IrregularFileError
from servicebus_pair.core.spool.storage import MAX_SMALL_FILE_BYTES, SpoolStorage, folder_name

CLAIM_SECONDS: Final = 60.0
"""A claim that was not renewed for this time may be taken over."""
_RENEWALS: Final = 6
_FOLDER: Final = "claims"


class Claim:
    """A claim that this process holds; ``lost`` is set once it could not be renewed."""

    def __init__(self, name: str, owner: str) -> None:
        self.name = name
        self.owner = owner
        self.lost = False


class Claims:
    """The claims in a spool.

    :param owner: names this process to people; unique identity is added.
    """

    def __init__(self, storage: SpoolStorage, *, clock: Clock, owner: str) -> None:
        self._storage = storage
        self._clock = clock
        self._owner = owner
        self._thread = DaemonThread("the claims of the spool")

    @asynccontextmanager
    async def claim(self, entity: str) -> AsyncIterator[Claim | None]:
        """Hold the claim of ``entity`` during the context; ``None`` if another process holds it."""
        claim = Claim(f"{_FOLDER}/{folder_name(entity)}", f"{self._owner} {uuid.uuid4().hex}")
        if not await self._acquire(claim):
            yield None
            return
        renewing = asyncio.create_task(self._renew(claim), name="renew a claim")
        try:
            yield claim
        finally:
            renewing.cancel()
            await asyncio.wait({renewing})
            if not claim.lost:
                await self._thread.call(self._storage.delete, claim.name)

    async def _acquire(self, claim: Claim) -> bool:
        if await self._create(claim.name, claim):
            return True
        expired = content = await self._read_expired(claim.name)
        successors: list[str] = []
        while content is not None:
            # No entity has this name: "!" is quoted.
            successors.append(f"{claim.name}!{sha256(content).hexdigest()[:16]}")
            if await self._create(successors[-1], claim):
                break
            content = await self._read_expired(successors[-1])
        else:
            return False
        # Since it was read, another process may have taken the claim over and deleted the successor.
        taken_over = await self._read_expired(claim.name) == expired
        if taken_over:
            await self._thread.call(self._storage.replace, claim.name, self._content(claim))
        for name in successors:
            await self._thread.call(self._storage.delete, name)
        return taken_over

    async def _create(self, name: str, claim: Claim) -> bool:
        try:
            await self._thread.call(self._storage.create, name, self._content(claim))
        except FileExistsError:
            return False
        return True

    async def _read(self, name: str) -> bytes | None:
        try:
            return await self._thread.call(self._storage.read, name, MAX_SMALL_FILE_BYTES)
        except FileNotFoundError:
            return None
        except IrregularFileError:
            return b""  # no process has written it

    async def _read_expired(self, name: str) -> bytes | None:
        """Return the content of a claim that may be taken over; ``None`` if there is none."""
        content = await self._read(name)
        held = None if content is None else _decode(content)
        # A clock that went back makes a claim of the future, which would hold for as long.
        now = self._clock.now()
        return content if held is None or not now - CLAIM_SECONDS < held[1] < now + CLAIM_SECONDS else None

    async def _renew(self, claim: Claim) -> None:
        renewed = self._clock.now()
        while not claim.lost:
            await self._clock.sleep(CLAIM_SECONDS / _RENEWALS)
            try:
                content = await self._read(claim.name)
                held = None if content is None else _decode(content)
                if held is not None and held[0] == claim.owner:
                    await self._thread.call(self._storage.replace, claim.name, self._content(claim))
                    renewed = self._clock.now()
                else:
                    claim.lost = True
            except Exception:  # noqa: BLE001 - whatever the storage raises: the claim ends when it is too old
                claim.lost = renewed < self._clock.now() - CLAIM_SECONDS / 2

    def _content(self, claim: Claim) -> bytes:
        return json.dumps({"owner": claim.owner, "renewed": self._clock.now()}).encode()


def _decode(content: bytes) -> tuple[str, float] | None:
    """Return the owner and the time of the last renewal; ``None`` if the content is unreadable."""
    try:
        fields = json.loads(content)
        return str(fields["owner"]), float(fields["renewed"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
