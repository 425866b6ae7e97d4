"""Claims: one process at a time empties the spool of an entity, so that its order is kept.

A claim is a file that is created exclusively, and renewed while it is used. One that was not renewed for long belongs
to a process that has ended, and is taken over. If clocks differ by more than that, or a store has no conditional
writes, two processes may hold a claim: messages are then delivered twice, never lost.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from urllib.parse import quote

from servicebus_pair.core.model.daemon_thread import DaemonThread
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.spool.storage import SpoolStorage

__all__ = ["CLAIM_SECONDS", "Claim", "Claims"]

CLAIM_SECONDS: Final = 120.0
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
        claim = Claim(f"{_FOLDER}/{quote(entity.casefold(), safe='')}", f"{self._owner} {uuid.uuid4().hex}")
        if not await self._acquire(claim):
            yield None
            return
        renewing = asyncio.create_task(self._renew(claim), name=f"renew {claim.name}")
        try:
            yield claim
        finally:
            renewing.cancel()
            await asyncio.wait({renewing})
            if not claim.lost:
                await self._thread.call(self._storage.delete, claim.name)

    async def _acquire(self, claim: Claim) -> bool:
        if await self._create(claim):
            return True
        held = await self._read(claim)
        if held is not None and self._clock.now() - held[1] < CLAIM_SECONDS:
            return False
        # Only one process succeeds in moving a file.
        expired = f"{claim.name}.expired-{uuid.uuid4().hex}"
        try:
            await self._thread.call(self._storage.move, claim.name, expired)
        except FileNotFoundError:
            return False
        await self._thread.call(self._storage.delete, expired)
        return await self._create(claim)

    async def _create(self, claim: Claim) -> bool:
        try:
            await self._thread.call(self._storage.create, claim.name, self._content(claim))
        except FileExistsError:
            return False
        return True

    async def _read(self, claim: Claim) -> tuple[str, float] | None:
        """Return owner and time of the last renewal; ``None`` if there is no claim or it cannot be read."""
        try:
            content = json.loads(await self._thread.call(self._storage.read, claim.name))
            return str(content["owner"]), float(content["renewed"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    async def _renew(self, claim: Claim) -> None:
        renewed = self._clock.now()
        while not claim.lost:
            await self._clock.sleep(CLAIM_SECONDS / _RENEWALS)
            try:
                held = await self._read(claim)
                if held is not None and held[0] == claim.owner:
                    await self._thread.call(self._storage.replace, claim.name, self._content(claim))
                    renewed = self._clock.now()
                else:
                    claim.lost = True
            except Exception:  # noqa: BLE001 - whatever the storage raises: the claim ends when it is too old
                claim.lost = self._clock.now() - renewed > CLAIM_SECONDS / 2

    def _content(self, claim: Claim) -> bytes:
        return json.dumps({"owner": claim.owner, "renewed": self._clock.now()}).encode()
