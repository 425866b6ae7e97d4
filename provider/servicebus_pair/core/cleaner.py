"""Deleting backlog queues that nobody needs any more (SPEC section 3), and none that holds a message.

Between counting and deleting a message may arrive. So an empty queue is first closed to senders,
then counted again, and only then deleted; if something did arrive it is opened again and kept, as it
is when the cleanup fails or is cancelled. One that is killed in between leaves a closed and empty
queue, which provisioning reports as drift of ``status`` and the next cleanup deletes; senders take
another queue meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from servicebus_pair.core.administration import Administration
from servicebus_pair.core.backlog import cleanup_targets
from servicebus_pair.core.errors import EntityNotFoundError, ServiceError
from servicebus_pair.core.results import CleanupReport

__all__ = ["Cleaner"]

_log = logging.getLogger(__name__)


class Cleaner:
    """Deletes backlog queues of one pair, on request only.

    :param namespace: name of the primary namespace, the first part of each path.
    :param count: number of backlog queues in use.
    """

    def __init__(self, administration: Administration, *, namespace: str, count: int) -> None:
        self._administration = administration
        self._namespace = namespace
        self._count = count

    async def plan(self, *, everything: bool, only: Collection[str] | None = None) -> tuple[str, ...]:
        """Answer which queues :meth:`clean` would look at, without touching them.

        :param only: none but these, by path; any when not given.
        :raises ServiceError: the secondary cannot be read.
        """
        actual = await self._administration.queues()
        targets = cleanup_targets(self._namespace, self._count, actual, everything=everything)
        chosen = None if only is None else {path.casefold() for path in only}
        return tuple(path for path in targets if chosen is None or path.casefold() in chosen)

    async def clean(self, *, everything: bool, force: bool, only: Collection[str] | None = None) -> CleanupReport:
        """Delete empty backlog queues that are extra, or all of them.

        :param force: delete them with the messages that they hold: those are lost.
        :param only: none but these, by path; any when not given.
        :raises ServiceError: the secondary cannot be read.
        """
        deleted: list[str] = []
        kept: dict[str, int] = {}
        failed: dict[str, str] = {}
        for path in await self.plan(everything=everything, only=only):
            try:
                held = await (self._delete(path) if force else self._delete_if_empty(path))
                if held:
                    kept[path] = held
                else:
                    deleted.append(path)
            except EntityNotFoundError:
                deleted.append(path)  # a concurrent run was faster
            except ServiceError as error:
                failed[path] = str(error)
        _log.info(
            "cleanup of namespace=%s deleted=%d kept=%d failed=%d forced=%s",
            self._namespace,
            len(deleted),
            len(kept),
            len(failed),
            force,
        )
        return CleanupReport(tuple(deleted), kept, failed)

    async def _delete(self, path: str) -> int:
        await self._administration.delete_queue(path)
        return 0

    async def _delete_if_empty(self, path: str) -> int:
        """Answer what the queue holds, which then takes messages as before; 0: it is deleted."""
        held = await self._administration.held(path)
        if held:
            return held
        try:
            await self._administration.allow_sending(path, allowed=False)
            arrived = await self._administration.held(path)
            if not arrived:
                return await self._delete(path)
        except BaseException as error:
            # Whatever happened: what was not deleted must not stay closed.
            await self._open_again(path, error)
            raise
        await self._administration.allow_sending(path, allowed=True)
        return arrived

    async def _open_again(self, path: str, because: BaseException) -> None:
        try:
            await self._administration.allow_sending(path, allowed=True)
        except EntityNotFoundError:
            raise  # deleted after all
        except ServiceError as error:
            _log.exception("backlog queue=%s is closed to senders and could not be opened again", path)
            if isinstance(because, ServiceError):
                raise type(because)(
                    f"{because}; and it stays closed to senders, since opening it again failed too ({error}): "
                    "clean up again, or set its status to Active"
                ) from because
