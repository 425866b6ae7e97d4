"""Health shared between tasks, triggers and runs: the core's ``HealthStore`` over Airflow's state store."""

from __future__ import annotations

import logging
from typing import Final

from servicebus_pair.core.health import EntityHealth
from servicebus_pair.hooks.assets import pair_asset
from servicebus_pair.hooks.roll import Roll
from servicebus_pair.hooks.state import AssetState

__all__ = ["HEALTH_KEY_PREFIX", "AirflowHealthStore"]

_log = logging.getLogger(__name__)
HEALTH_KEY_PREFIX: Final = "health/"
_ROLL_PREFIX: Final = "entities/"


class AirflowHealthStore:
    """The health of the entities of one pair, one key each, in the state of ``servicebus-pair://CONN_ID``.

    Soft state: a wrong value heals itself, since a ping corrects "failed over" and a failing send
    corrects "healthy". Outside tasks and triggers it remembers for itself only.

    :param conn_id: the connection that the state belongs to.
    """

    def __init__(self, conn_id: str) -> None:
        self._state = AssetState(pair_asset(conn_id))
        self._entities = Roll(self._state, prefix=_ROLL_PREFIX)

    async def load(self, entity: str) -> EntityHealth | None:
        """Return what is known of ``entity``, or ``None``; an unreadable record counts as nothing."""
        value = await self._state.get(_key(entity))
        if value is None:
            return None
        try:
            return EntityHealth.from_json(value)
        except ValueError as error:
            _log.warning("entity=%s: its shared health is ignored: %s", entity, error)
            return None

    async def save(self, entity: str, health: EntityHealth) -> None:
        """Share the health of ``entity``; the last writer wins."""
        await self._state.set(_key(entity), health.to_json())
        await self._entities.add(entity.casefold())

    async def known(self) -> dict[str, EntityHealth]:
        """Return the health of every entity whose health was ever shared, by folded path."""
        loaded = {entity: await self.load(entity) for entity in sorted(await self._entities.names())}
        return {entity: health for entity, health in loaded.items() if health is not None}


def _key(entity: str) -> str:
    return HEALTH_KEY_PREFIX + entity.casefold()
