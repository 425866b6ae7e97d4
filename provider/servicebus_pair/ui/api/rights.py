"""What a user may read and do, as Airflow's auth manager says.

It may give rights to single assets and DAGs, or to a DAG without its runs, so each is asked for by its id.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from typing import Annotated, Literal, TypeAlias

from fastapi import Depends, HTTPException, status

from servicebus_pair.airflow_runtime.airflow_version import (
    AssetDetails,
    BaseUser,
    DagAccessEntity,
    DagDetails,
    DagModel,
    get_auth_manager,
    get_user,
    server_conf,
)

Method: TypeAlias = Literal["GET", "POST", "PUT"]


def check_may_read_assets(user: Annotated[BaseUser, Depends(get_user)]) -> None:
    """Refuse a user who may not read assets at all."""
    if not may_use_asset("GET", None, user):
        raise HTTPException(status.HTTP_403_FORBIDDEN, "you may not read assets")


def may_use_asset(method: Method, asset_id: int | None, user: BaseUser) -> bool:
    """Return whether the user has the right to one asset, or to assets in general for ``None``."""
    details = AssetDetails(id=None if asset_id is None else str(asset_id))
    return get_auth_manager().is_authorized_asset(method=method, details=details, user=user)


def may_trigger(dag_id: str, user: BaseUser) -> bool:
    """Return whether the user may trigger runs of the DAG."""
    return _may_use_runs("POST", dag_id, _teams({dag_id}).get(dag_id), user)


def hidden_dags(dag_ids: AbstractSet[str], user: BaseUser) -> frozenset[str]:
    """Return those of the DAGs that the user may not read, or whose runs the user may not read."""
    teams = _teams(dag_ids)
    dags_by_team: dict[str | None, set[str]] = {}
    for dag_id in dag_ids:
        dags_by_team.setdefault(teams.get(dag_id), set()).add(dag_id)
    manager = get_auth_manager()
    # Without its team, a DAG would be one of everybody.
    readable: set[str] = set().union(
        *(
            manager.filter_authorized_dag_ids(dag_ids=of_team, user=user)
            if team is None
            else manager.filter_authorized_dag_ids(dag_ids=of_team, user=user, team_name=team)
            for team, of_team in dags_by_team.items()
        )
    )
    # At first all at once: a manager may ask another server for each.
    if readable and not manager.batch_is_authorized_dag(
        [
            {"method": "GET", "access_entity": DagAccessEntity.RUN, "details": _details(dag_id, teams.get(dag_id))}
            for dag_id in readable
        ],
        user=user,
    ):
        readable = {dag_id for dag_id in readable if _may_use_runs("GET", dag_id, teams.get(dag_id), user)}
    return frozenset(dag_ids).difference(readable)


def _may_use_runs(method: Method, dag_id: str, team: str | None, user: BaseUser) -> bool:
    return get_auth_manager().is_authorized_dag(
        method=method, access_entity=DagAccessEntity.RUN, details=_details(dag_id, team), user=user
    )


def _details(dag_id: str, team: str | None) -> DagDetails:
    return DagDetails(dag_id) if team is None else DagDetails(dag_id, team_name=team)


def _teams(dag_ids: AbstractSet[str]) -> Mapping[str, str | None]:
    if not dag_ids or not server_conf.getboolean("core", "multi_team", fallback=False):
        return {}
    return DagModel.get_dag_id_to_team_name_mapping(sorted(dag_ids))
