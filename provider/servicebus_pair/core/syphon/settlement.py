"""Settles received messages of one backlog queue, and counts what was confirmed (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.core.model.events import DeadLettered
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.syphon.drain_context import CALL_TIMEOUT, DrainContext

if TYPE_CHECKING:
    from servicebus_pair.core.model.errors import UndeliverableError
    from servicebus_pair.core.syphon.batch_sender import DrainCounters
    from servicebus_pair.core.syphon.ports import Source

_log = get_logger(__name__)
# Seconds for releasing messages after a stop; locks of those not reached expire.
RELEASE_TIMEOUT: Final = 2.0
# Characters of a dead-letter description, which may quote the message.
_MAX_DESCRIPTION: Final = 1000


class Settlement:
    """Completes and dead-letters messages received over one link.

    :param queue: path of the backlog queue.
    """

    def __init__(self, context: DrainContext, queue: str, source: Source, counters: DrainCounters) -> None:
        self._context = context
        self._queue = queue
        self._source = source
        self._counters = counters

    async def complete(self, confirmed: Sequence[Any], *, request: int = 0) -> bool:
        """Complete the messages that the primary confirmed; return whether the service confirmed each completion.

        :param request: how many messages are received next.
        """
        if not confirmed:
            return True
        # After a stop, do not wait long; messages without a confirmed completion may be delivered again.
        timeout = RELEASE_TIMEOUT if self._context.paused else CALL_TIMEOUT
        try:
            results = await self._source.complete(confirmed, timeout=timeout, request=request)
        except asyncio.CancelledError:
            self._counters.duplicates_possible += len(confirmed)
            raise
        errors = [error for error in results if error is not None]
        self._counters.duplicates_possible += len(errors)
        if errors:
            _log.warning(
                "backlog queue=%s completions failed=%d of=%d, they may come again: %s",
                self._queue,
                len(errors),
                len(confirmed),
                errors[0],
            )
        return not errors

    async def dead_letter(self, received: Any, error: UndeliverableError) -> bool:
        """Dead-letter a message that can never be delivered; return whether the service confirmed it."""
        name, description = _message_id(received), error.description[:_MAX_DESCRIPTION]
        _log.warning(
            "backlog queue=%s message=%r is dead-lettered reason=%s: %s", self._queue, name, error.reason, description
        )
        failure = await self._source.dead_letter(
            received, reason=error.reason, description=description, timeout=CALL_TIMEOUT
        )
        if failure is not None:
            self._counters.failures[self._queue] = str(failure)
            return False
        self._counters.dead_lettered[error.reason] += 1
        self._context.emit(DeadLettered(self._queue, name, error.reason, self._context.clock.now()))
        return True


def _message_id(received: Any) -> str:
    try:
        return str(received.message_id)
    except Exception:  # noqa: BLE001 - the message may be the one that cannot be read
        return "unreadable"
