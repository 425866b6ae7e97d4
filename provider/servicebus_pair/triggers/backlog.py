"""``BacklogTrigger``: watches the backlog, so that messages in it start a recovery whoever sent them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import Any, Final

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from servicebus_pair.core.errors import ConfigurationError, PairError
from servicebus_pair.hooks.assets import pair_asset
from servicebus_pair.hooks.backlog import Depth, look_at_backlog
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.hooks.sharing import watched_pair
from servicebus_pair.hooks.state import AssetState
from servicebus_pair.hooks.waiting import check_interval

__all__ = ["BacklogTrigger", "due", "rearm"]

_log = logging.getLogger(__name__)
_STATE_KEY: Final = "backlog/announced"
_REPEAT_SECONDS: Final = 3600.0
_ARMED: Final = 0.0


def due(depth: Depth, *, announced: float, now: float, repeat: float) -> bool:
    """Answer whether a backlog of this depth is to be announced.

    :param announced: when it was announced last, in seconds since the Unix epoch; 0 when it is armed.
    :param repeat: seconds after which a backlog that is still there is announced again.
    """
    return depth.messages > 0 and now - announced >= repeat


async def rearm(conn_id: str) -> None:
    """Let the next look at a backlog that holds messages announce it: called by whoever drained it."""
    await AssetState(pair_asset(conn_id)).set(_STATE_KEY, _ARMED)


class BacklogTrigger(BaseEventTrigger):
    """For an ``AssetWatcher``: fires when the backlog holds messages that were not announced yet.

    One listing of the secondary every ``interval`` seconds, which is billed as a management call.
    It is armed again when the backlog is seen empty, when a syphon operator has drained, and after
    ``repeat`` seconds. It runs for ever; a failing look is logged and repeated. An event can come
    twice when the triggerer dies at that moment; none is lost.

    The event is ``{"messages": n, "queues": n, "entities": [...]}``; ``entities`` are where the
    messages are going, as far as peeking tells.

    :param conn_id: the connection.
    :param interval: seconds between two looks, 1 to 3600.
    :param repeat: seconds after which a backlog that nobody drained is announced again, not fewer than ``interval``.
    :raises ConfigurationError: one of them is wrong.
    """

    def __init__(self, *, conn_id: str, interval: float = 10.0, repeat: float = _REPEAT_SECONDS) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.conn_id = conn_id
        self.interval = check_interval("interval", interval)
        if not repeat >= self.interval:
            raise ConfigurationError(f"repeat is {repeat!r}: allowed are seconds, at least interval, {interval:g}")
        self.repeat = repeat

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what recreates this trigger elsewhere: no secrets."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {"conn_id": self.conn_id, "interval": self.interval, "repeat": self.repeat},
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look for ever."""
        state = AssetState(pair_asset(self.conn_id))
        while True:
            event: dict[str, Any] | None = None
            try:
                event = await self._look(state)
            except PairError as error:
                _log.warning("conn_id=%s: the backlog cannot be seen: %s", self.conn_id, error)
            except Exception:  # noqa: BLE001  a watcher that ends is started again every 2 s, for ever
                _log.exception("conn_id=%s: looking at the backlog failed", self.conn_id)
            if event is not None:
                yield TriggerEvent(event)  # type: ignore[no-untyped-call]
                # Only now: an event that is lost with the triggerer must come again.
                await state.set(_STATE_KEY, time.time())
            await asyncio.sleep(self.interval)

    async def _look(self, state: AssetState) -> dict[str, Any] | None:
        async with watched_pair(ServiceBusPairHook(self.conn_id)) as watched:
            depth = await look_at_backlog(watched, conn_id=self.conn_id, young=0.0, ages=False)
            announced = float(await state.get(_STATE_KEY) or _ARMED)
            if depth.messages == 0 and announced != _ARMED:
                await state.set(_STATE_KEY, _ARMED)
            if not due(depth, announced=announced, now=time.time(), repeat=self.repeat):
                return None
            entities = sorted((await watched.glimpse(young=self.interval)).destinations)
        _log.info("conn_id=%s backlog messages=%d queues=%d", self.conn_id, depth.messages, depth.queues)
        return {"messages": depth.messages, "queues": depth.queues, "entities": entities}
