"""``BacklogTrigger``: watches the backlog, so that messages of any sender start a recovery."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any, Final

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from servicebus_pair.airflow_runtime.state.accessor import AssetState
from servicebus_pair.airflow_runtime.validators import duration, poll_interval_seconds, text
from servicebus_pair.airflow_runtime.waiting.backlog import BacklogDepth, read_backlog_depth
from servicebus_pair.airflow_runtime.waiting.deferral import PairTrigger
from servicebus_pair.airflow_runtime.waiting.pair_cache import shared_pair
from servicebus_pair.assets import pair_asset
from servicebus_pair.core.errors import PairError
from servicebus_pair.core.model import get_logger
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

__all__ = ["BacklogTrigger", "is_due", "rearm"]

_log = get_logger(__name__)
_STATE_KEY: Final = "backlog/announced"
_REPEAT_SECONDS: Final = 3600.0
_ARMED: Final = 0.0


def is_due(depth: BacklogDepth, *, last_event: float, now: float, repeat: float) -> bool:
    """Return whether a backlog of this depth needs an event.

    :param last_event: when it last had one, in seconds since the Unix epoch; 0 when the trigger is armed.
    :param repeat: seconds after which a backlog that still holds messages gets another event.
    """
    return depth.total_messages > 0 and now - last_event >= repeat


async def rearm(conn_id: str) -> None:
    """Let the next reading that finds messages fire an event; called after a drain."""
    await AssetState(pair_asset(conn_id)).set(_STATE_KEY, _ARMED)


class BacklogTrigger(PairTrigger, BaseEventTrigger):
    """Fires when the backlog or the spool holds messages that had no event yet; for an ``AssetWatcher``.

    It lists the secondary's queues every ``interval`` seconds, which is billed as a management call. It is armed
    again when the backlog is seen empty, when a syphon operator has drained it, and after ``repeat`` seconds. It runs
    forever; a failed reading is logged and repeated. At least once: an event may come twice when the triggerer dies
    just then, and none is lost.

    The event is ``{"messages": n, "queues": n, "spooled": n, "entities": [...]}``; ``entities`` are the destinations
    found by peeking at the oldest messages, and those in the spool.

    :param servicebus_pair_conn_id: the connection.
    :param interval: time between two readings, 1 s to an hour: a ``timedelta`` or seconds.
    :param repeat: time after which a backlog that was not drained fires again, at least ``interval``: a ``timedelta``
        or seconds.
    :raises ConfigurationError: a parameter is invalid.
    """

    def __init__(
        self,
        *,
        servicebus_pair_conn_id: str,
        interval: timedelta | float = 10.0,
        repeat: timedelta | float = _REPEAT_SECONDS,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.servicebus_pair_conn_id = text("servicebus_pair_conn_id", servicebus_pair_conn_id)
        self.interval = poll_interval_seconds("interval", interval)
        self.repeat = duration(timedelta(seconds=self.interval))("repeat", repeat).total_seconds()
        self.check_arguments()

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and arguments that recreate this trigger; they contain no secrets."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "servicebus_pair_conn_id": self.servicebus_pair_conn_id,
                "interval": self.interval,
                "repeat": self.repeat,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Watch the backlog forever."""
        state = AssetState(pair_asset(self.servicebus_pair_conn_id))
        while True:
            event: dict[str, Any] | None = None
            try:
                event = await self._check_backlog(state)
            except PairError as error:
                _log.warning("conn_id=%s: cannot read the backlog: %s", self.servicebus_pair_conn_id, error)
            except Exception:  # noqa: BLE001  Airflow would restart a watcher that ends every 2 s, forever
                _log.exception("conn_id=%s: reading the backlog failed", self.servicebus_pair_conn_id)
            if event is not None:
                yield TriggerEvent(event)  # type: ignore[no-untyped-call]
                # Only now, so that an event that is lost with the triggerer comes again.
                await state.set(_STATE_KEY, time.time())
            await asyncio.sleep(self.interval)

    async def _check_backlog(self, state: AssetState) -> dict[str, Any] | None:
        async with shared_pair(ServiceBusPairHook(self.servicebus_pair_conn_id)) as shared:
            depth = await read_backlog_depth(shared, conn_id=self.servicebus_pair_conn_id, max_age=0.0, with_ages=False)
            last_event = float(await state.get(_STATE_KEY) or _ARMED)
            if depth.total_messages == 0 and last_event != _ARMED:
                await state.set(_STATE_KEY, _ARMED)
            if not is_due(depth, last_event=last_event, now=time.time(), repeat=self.repeat):
                return None
            found = {entity.casefold(): entity for entity in await shared.spooled(max_age=self.interval)}
            for entity in (await shared.first_page(max_age=self.interval)).destinations:
                found[entity.casefold()] = entity
            entities = sorted(found.values())
        _log.info(
            "conn_id=%s backlog messages=%d queues=%d spooled=%d",
            *(self.servicebus_pair_conn_id, depth.messages, depth.queues, depth.spooled),
        )
        return {
            "messages": depth.messages,
            "queues": depth.queues,
            "spooled": depth.spooled,
            "entities": entities,
        }
