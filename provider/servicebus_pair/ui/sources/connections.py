"""Finds the pairs that this API server knows and loads their settings."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import Final

from servicebus_pair.airflow_runtime.airflow_version import AirflowException, AirflowNotFoundException
from servicebus_pair.core import PairSettings
from servicebus_pair.core.errors import PairError
from servicebus_pair.core.model import OPTION_CHECKS
from servicebus_pair.core.pair import ENDPOINT_SETTINGS, SIDES
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

_VARIABLE_PREFIX: Final = "AIRFLOW_CONN_"
_NAME: Final = re.compile(r"\w+", re.ASCII)


def load_pair_settings(extra_conn_ids: Iterable[str]) -> dict[str, PairSettings | str]:
    """Return the settings of every pair, or the error that prevents loading them, sorted by connection id.

    Pairs are found by connections of type ``servicebus_pair`` in the environment and the metadata database. Connections
    in a secrets backend cannot be listed.

    :param extra_conn_ids: connection ids found otherwise, such as those of pairs with stored state.
    """
    conn_ids = sorted({*_conn_ids_in_environment(), *_conn_ids_in_database(), *extra_conn_ids})
    return {conn_id: _load_settings(conn_id) for conn_id in conn_ids}


def _load_settings(conn_id: str) -> PairSettings | str:
    try:
        return ServiceBusPairHook(conn_id).get_settings()
    except AirflowNotFoundException:
        return f"the connection {conn_id} does not exist"
    except PairError as error:
        return _problem(str(error))
    except Exception as error:  # noqa: BLE001  any connection may be invalid in any way, and must not hide the others
        return f"the connection cannot be read: {type(error).__name__}"


def _problem(text: str) -> str:
    """Return which setting is wrong, without its value: viewers may not read connections."""
    names = {f"{side}_{name}" for side in SIDES for name in ("", "conn_id", *ENDPOINT_SETTINGS)}
    names |= {*OPTION_CHECKS, *ENDPOINT_SETTINGS, "login", "password", "schema", "fully_qualified_namespace"}
    named = next((name for name in _NAME.findall(text) if name in names), None)
    what = "its settings are" if named is None else f"its setting {named} is"
    return f"{what} missing or not allowed: the test of the connection says why"


def _conn_ids_in_environment() -> list[str]:
    names = [name.removeprefix(_VARIABLE_PREFIX).lower() for name in os.environ if name.startswith(_VARIABLE_PREFIX)]
    return [conn_id for conn_id in names if _is_pair(conn_id)]


def _is_pair(conn_id: str) -> bool:
    from servicebus_pair.airflow_runtime.airflow_version import EnvironmentVariablesBackend

    try:
        connection = EnvironmentVariablesBackend().get_connection(conn_id)
    except (AirflowException, ValueError):  # an invalid connection of another type; not for this page to report
        return False
    return connection is not None and connection.conn_type == ServiceBusPairHook.conn_type


def _conn_ids_in_database() -> list[str]:
    from sqlalchemy import select

    from servicebus_pair.airflow_runtime.airflow_version import ConnectionModel, create_session

    query = select(ConnectionModel.conn_id).where(ConnectionModel.conn_type == ServiceBusPairHook.conn_type)
    with create_session() as session:
        return list(session.scalars(query))
