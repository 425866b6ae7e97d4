"""Entity health shared between tasks, triggers and runs: the core's ``HealthStore`` on Airflow's asset state store."""

from __future__ import annotations

from typing import Any, Final

from servicebus_pair.airflow_runtime.state.accessor import AssetState
from servicebus_pair.airflow_runtime.state.name_index import NameIndex
from servicebus_pair.assets import pair_asset
from servicebus_pair.core import EntityHealth
from servicebus_pair.core.model import get_logger

_log = get_logger(__name__)
HEALTH_KEY_PREFIX: Final = "health/"
_INDEX_KEY_PREFIX: Final = "entity_index/"


class AirflowHealthStore:
    """The health of one pair's entities, one key each, in the state of the asset ``servicebus-pair://CONN_ID``.

    The state is soft: a ping corrects a wrong "failed over", and a failing send corrects a wrong "healthy". Outside
    tasks and triggers the store lives in memory.

    :param conn_id: the pair's connection.
    """

    def __init__(self, conn_id: str) -> None:
        self._state = AssetState(pair_asset(conn_id))
        self._entities = NameIndex(self._state, prefix=_INDEX_KEY_PREFIX)

    async def load(self, entity: str) -> EntityHealth | None:
        """Return the shared health of ``entity``, or ``None`` when there is none or it cannot be parsed.

        :raises Exception: the state cannot be read.
        """
        return _parsed(entity, await self._state.read(_key(entity)))

    async def save(self, entity: str, health: EntityHealth) -> None:
        """Share the health of ``entity``; the last writer wins. :raises Exception: the state cannot be written."""
        await self._state.write(_key(entity), health.to_json())
        await self._entities.add(entity.casefold())

    async def known(self) -> dict[str, EntityHealth]:
        """Return the readable health of every entity that was ever saved, by lower-case path."""
        names = sorted(await self._entities.names())
        loaded = {entity: _parsed(entity, await self._state.get(_key(entity))) for entity in names}
        return {entity: health for entity, health in loaded.items() if health is not None}


def _parsed(entity: str, value: Any) -> EntityHealth | None:
    if value is None:
        return None
    try:
        return EntityHealth.from_json(value)
    except ValueError as error:
        _log.warning("entity=%s: ignoring its shared health: %s", entity, error)
        return None


def _key(entity: str) -> str:
    return HEALTH_KEY_PREFIX + entity.casefold()
