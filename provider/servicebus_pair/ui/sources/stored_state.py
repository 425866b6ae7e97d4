"""The state of the pairs in Airflow's database: that of their assets, or Variables before Airflow 3.3."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from servicebus_pair.airflow_runtime.airflow_version import has
from servicebus_pair.airflow_runtime.state.variables import VARIABLE_PREFIX, variable_name
from servicebus_pair.assets import ASSET_NAME_PREFIX, conn_id_of
from servicebus_pair.ui.sources.task_values import read_json, total_characters

if TYPE_CHECKING:
    from sqlalchemy.orm import Session

_MAX_CHARACTERS: Final = 2**22


class StoredState:
    """The state of one pair, as JSON.

    :param asset_id: id of the pair's asset.
    """

    def __init__(self, session: Session, *, conn_id: str, asset_id: int) -> None:
        self._session = session
        self._asset_name = f"{ASSET_NAME_PREFIX}{conn_id}"
        self._asset_id = asset_id

    def get(self, key: str) -> str | None:
        """Return the value of a key."""
        if not has("asset_state"):
            from sqlalchemy import select

            from servicebus_pair.airflow_runtime.airflow_version import VariableModel

            named = VariableModel.key == variable_name(self._asset_name, key)
            found = self._session.scalar(select(VariableModel).where(named))
            return None if found is None else found.val
        from servicebus_pair.airflow_runtime.airflow_version import AssetScope, MetastoreBackend

        return MetastoreBackend().get(AssetScope(asset_id=self._asset_id), key, session=self._session)

    def set(self, key: str, value: str) -> None:
        """Store a value."""
        if not has("asset_state"):
            from servicebus_pair.airflow_runtime.airflow_version import VariableModel

            VariableModel.set(variable_name(self._asset_name, key), value, session=self._session)
            return
        from servicebus_pair.airflow_runtime.airflow_version import (
            AssetScope,
            AssetStateStoreWriterKind,
            MetastoreBackend,
        )

        MetastoreBackend().set_asset_state_store(
            AssetScope(asset_id=self._asset_id),
            key,
            value,
            kind=AssetStateStoreWriterKind.API,
            session=self._session,
        )


def read_states(session: Session) -> dict[str, dict[str, Any]]:
    """Return the state of every pair, by connection id and key; of one that has more than 4 MiB, the newest values."""
    states: dict[str, dict[str, Any]] = {}
    stored = _stored_variables(session) if not has("asset_state") else _stored_with_assets(session)
    for name, key, value in stored:
        conn_id = conn_id_of(name)
        if conn_id is not None:
            states.setdefault(conn_id, {})[key] = read_json(value)
    return states


def _stored_with_assets(session: Session) -> list[tuple[str, str, Any]]:
    from sqlalchemy import select

    from servicebus_pair.airflow_runtime.airflow_version import AssetModel, AssetStateStoreModel

    store = AssetStateStoreModel
    # Whoever writes a task writes its state: the newest of each pair, as far as there is room for them.
    newest = store.updated_at.desc(), store.key
    total = total_characters(store.key, store.value, of_each=store.asset_id, newest=newest)
    stored = (
        select(AssetModel.name, store.key, store.value, total.label("total"))
        .join(store, store.asset_id == AssetModel.id)
        .where(AssetModel.name.startswith(ASSET_NAME_PREFIX, autoescape=True))
        .subquery()
    )
    query = select(stored.c.name, stored.c.key, stored.c.value).where(stored.c.total <= _MAX_CHARACTERS)
    return [(name, key, value) for name, key, value in session.execute(query)]


def _stored_variables(session: Session) -> list[tuple[str, str, Any]]:
    from sqlalchemy import select

    from servicebus_pair.airflow_runtime.airflow_version import VariableModel

    found = []
    query = select(VariableModel).where(VariableModel.key.startswith(VARIABLE_PREFIX, autoescape=True))
    for each in session.scalars(query):
        conn_id, _, key = each.key.removeprefix(VARIABLE_PREFIX).partition("/")
        found.append((f"{ASSET_NAME_PREFIX}{conn_id}", key, each.val))
    return found
