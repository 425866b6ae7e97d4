"""What the page shows: every pair that this API server knows, its health and its backlog."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from airflow.sdk.exceptions import AirflowException

from servicebus_pair.core.configuration import PairSettings
from servicebus_pair.core.errors import PairError
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.hooks.assets import ASSET_NAME_PREFIX, conn_id_of
from servicebus_pair.hooks.health import HEALTH_KEY_PREFIX
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

__all__ = ["BacklogView", "EntityView", "PairView", "overview"]

_VARIABLE_PREFIX: Final = "AIRFLOW_CONN_"
_LOOK_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class EntityView:
    """The health of one entity, as tasks shared it; ``since`` in seconds since the Unix epoch."""

    entity: str
    state: str
    since: float
    reason: str
    by: str


@dataclass(frozen=True, slots=True)
class BacklogView:
    """What the backlog queues hold, or why that is not known."""

    queues: int = 0
    messages: int = 0
    dead_lettered: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True)
class PairView:
    """One pair."""

    conn_id: str
    primary: str | None
    secondary: str | None
    entities: tuple[EntityView, ...]
    backlog: BacklogView

    def to_json(self) -> dict[str, Any]:
        """The form in which the API answers."""
        return asdict(self)


def overview() -> list[PairView]:
    """Read every pair, by connection id; at most 3 s for the backlogs of all of them.

    A pair is known by a connection of type ``servicebus_pair`` in the environment or the metadata
    database, or by the state that its tasks keep, wherever its connection is.
    """
    states = _states()
    conn_ids = sorted({*_connections_in_environment(), *_connections_in_database(), *states})
    settings = {conn_id: _settings(conn_id) for conn_id in conn_ids}
    backlogs = asyncio.run(_backlogs(settings))
    return [_pair(conn_id, settings[conn_id], states.get(conn_id, {}), backlogs[conn_id]) for conn_id in conn_ids]


def _pair(conn_id: str, settings: PairSettings | str, state: Mapping[str, str], backlog: BacklogView) -> PairView:
    known = settings if isinstance(settings, PairSettings) else None
    return PairView(
        conn_id=conn_id,
        primary=None if known is None else known.primary.namespace,
        secondary=None if known is None else known.secondary.namespace,
        entities=tuple(_entities(state)),
        backlog=backlog,
    )


def _entities(state: Mapping[str, str]) -> Iterable[EntityView]:
    for key, value in sorted(state.items()):
        if not key.startswith(HEALTH_KEY_PREFIX):
            continue
        entity = key.removeprefix(HEALTH_KEY_PREFIX)
        try:
            health = EntityHealth.from_json(json.loads(value))
        except ValueError as error:
            yield EntityView(entity, "unreadable", 0.0, str(error), "")
        else:
            yield EntityView(entity, health.state.value, health.since, health.reason, health.by)


def _settings(conn_id: str) -> PairSettings | str:
    """The pair's settings, or why they cannot be read."""
    try:
        return ServiceBusPairHook(conn_id).get_settings()
    except (PairError, AirflowException) as error:
        return str(error)


async def _backlogs(settings: Mapping[str, PairSettings | str]) -> dict[str, BacklogView]:
    views = await asyncio.gather(*(_backlog(each) for each in settings.values()))
    return dict(zip(settings, views, strict=True))


async def _backlog(settings: PairSettings | str) -> BacklogView:
    if isinstance(settings, str):
        return BacklogView(error=settings)
    from servicebus_pair.core.pair import NamespacePair

    try:
        pair = NamespacePair(settings.primary, settings.secondary, settings.options)
        depths = await asyncio.wait_for(pair.backlog_depths(), _LOOK_SECONDS)
    except TimeoutError:
        return BacklogView(error=f"no answer from {settings.secondary.namespace} within {_LOOK_SECONDS:.0f} s")
    except PairError as error:
        return BacklogView(error=str(error))
    return BacklogView(
        queues=len(depths),
        messages=sum(depth.active + depth.scheduled for depth in depths),
        dead_lettered=sum(depth.dead_lettered for depth in depths),
    )


def _connections_in_environment() -> list[str]:
    names = [name.removeprefix(_VARIABLE_PREFIX).lower() for name in os.environ if name.startswith(_VARIABLE_PREFIX)]
    return [conn_id for conn_id in names if _is_pair(conn_id)]


def _is_pair(conn_id: str) -> bool:
    from airflow.secrets.environment_variables import EnvironmentVariablesBackend

    try:
        connection = EnvironmentVariablesBackend().get_connection(conn_id)
    except (AirflowException, ValueError):  # not ours to report: somebody else's connection cannot be read
        return False
    return connection is not None and connection.conn_type == ServiceBusPairHook.conn_type


def _connections_in_database() -> list[str]:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select

    ours = select(Connection.conn_id).where(Connection.conn_type == ServiceBusPairHook.conn_type)
    with create_session() as session:
        return list(session.scalars(ours))


def _states() -> dict[str, dict[str, str]]:
    """The state kept with the asset of each pair, values as JSON, by connection id."""
    from airflow.models.asset import AssetModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    rows = select(AssetModel.name, AssetStateStoreModel.key, AssetStateStoreModel.value).join(
        AssetStateStoreModel, AssetStateStoreModel.asset_id == AssetModel.id
    )
    states: dict[str, dict[str, str]] = {}
    with create_session() as session:
        ours = rows.where(AssetModel.name.startswith(ASSET_NAME_PREFIX, autoescape=True))
        for name, key, value in session.execute(ours):
            conn_id = conn_id_of(name)
            if conn_id is not None:
                states.setdefault(conn_id, {})[key] = value
    return states
