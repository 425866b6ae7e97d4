"""Which folder spools hold messages, shared so that a spool which only one machine sees is not forgotten.

A folder that is no shared mount can be listed on its own machine only. A task that changes such a spool therefore
saves what it holds, by the spool's name, in the state of the pair's asset. The page and the tasks that wait or drain
name the spools that are not theirs. The state is soft: two tasks that save at once may undo each other until the next
save, and a machine that is gone stays listed until its spool would be too old.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.airflow_runtime.state.accessor import AssetState
from servicebus_pair.assets import pair_asset
from servicebus_pair.core.errors import PairError
from servicebus_pair.core.events import Event, MessagesAccepted, MessagesUnspooled, Route
from servicebus_pair.core.model import get_logger, is_folder

if TYPE_CHECKING:
    from servicebus_pair.core import NamespacePair

_log = get_logger(__name__)
SPOOLS_KEY: Final = "spools"
_MAX_SPOOLS: Final = 200
_MAX_NAME: Final = 1000
_LARGEST: Final = 2**53
_SAVE_INTERVAL_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class SpoolSighting:
    """What a spool held when a task last looked.

    :param oldest_at: when its oldest message was written; Unix time in seconds, as ``at`` is.
    """

    messages: int
    oldest_at: float
    at: float


def parse_sightings(value: Any) -> dict[str, SpoolSighting]:
    """Return the sightings in a stored value by the spool's name; what is not of their shape is left out."""
    if not isinstance(value, Mapping):
        return {}
    found: dict[str, SpoolSighting] = {}
    for name, each in list(value.items())[:_MAX_SPOOLS]:
        fields: Mapping[str, Any] = each if isinstance(each, Mapping) else {}
        numbers: list[Any] = [fields.get(key) for key in ("messages", "oldest_at", "at")]
        is_sound = isinstance(name, str) and name.isprintable() and len(name) <= _MAX_NAME
        if is_sound and all(type(number) in (int, float) and 0 <= number <= _LARGEST for number in numbers):
            found[name] = SpoolSighting(int(numbers[0]), numbers[1], numbers[2])
    return found


class SpoolSightings:
    """Observer that saves what the pair's folder spool holds after it has changed.

    :param conn_id: the pair's connection.
    """

    def __init__(self, conn_id: str) -> None:
        self._state = AssetState(pair_asset(conn_id))
        self._changed = False

    def observe(self, event: Event) -> None:
        """Remember whether the spool has changed."""
        self._changed |= isinstance(event, MessagesUnspooled) or (
            isinstance(event, MessagesAccepted) and event.route is Route.SPOOLED
        )

    @asynccontextmanager
    async def saving(self, pair: NamespacePair) -> AsyncIterator[None]:
        """Save the spool of an open pair every few seconds and at the end of the block, when it has changed."""
        if not is_folder(pair.options.spool):
            yield
            return
        saver = asyncio.create_task(self._save_periodically(pair), name="save spool sightings")
        try:
            yield
        finally:
            saver.cancel()
            await asyncio.wait({saver})
            await self._save(pair)

    async def elsewhere(self, pair: NamespacePair) -> dict[str, SpoolSighting]:
        """Return the spools that hold messages, except the one that ``pair`` sees and those that are too old."""
        if not is_folder(pair.options.spool):
            return {}
        own, oldest = await pair.spool_name(), time.time() - pair.options.spool_max_age.total_seconds()
        known = parse_sightings(await self._state.get(SPOOLS_KEY))
        return {name: each for name, each in known.items() if name != own and each.at >= oldest}

    async def _save_periodically(self, pair: NamespacePair) -> None:
        while True:
            await asyncio.sleep(_SAVE_INTERVAL_SECONDS)
            await self._save(pair)

    async def _save(self, pair: NamespacePair) -> None:
        if not self._changed:
            return
        self._changed = False
        try:
            name, found = await pair.spool_name(), await pair.spooled()
        except PairError as error:
            _log.warning("cannot list the spool: %s", error)
            return
        if name is None:
            return
        known = {key: asdict(each) for key, each in parse_sightings(await self._state.get(SPOOLS_KEY)).items()}
        known.pop(name, None)
        if found:
            oldest = min(each.oldest_at for each in found.values())
            known[name] = asdict(SpoolSighting(sum(each.messages for each in found.values()), oldest, time.time()))
        await self._state.set(SPOOLS_KEY, dict(list(known.items())[-_MAX_SPOOLS:]))


async def warn_of_other_spools(conn_id: str, pair: NamespacePair) -> None:
    """Log each spool that holds messages and that this machine does not see."""
    try:
        found = await SpoolSightings(conn_id).elsewhere(pair)
    except PairError as error:
        _log.warning("conn_id=%s: cannot read the name of the spool: %s", conn_id, error)
        return
    for name, each in found.items():
        _log.warning(
            "conn_id=%s: spool %s held %d messages when a task last looked, and cannot be seen from here: a syphon on "
            "that machine empties it",
            *(conn_id, name, each.messages),
        )
