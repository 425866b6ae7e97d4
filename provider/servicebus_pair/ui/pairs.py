"""Which pairs this API server knows, and how to reach them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Final

from airflow.sdk.exceptions import AirflowException

from servicebus_pair.core.configuration import PairSettings
from servicebus_pair.core.errors import PairError
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

__all__ = ["known_pairs"]

_VARIABLE_PREFIX: Final = "AIRFLOW_CONN_"


def known_pairs(others: Iterable[str]) -> dict[str, PairSettings | str]:
    """Return the settings of every pair, or why they cannot be read, by connection id, in order.

    A pair is known by a connection of type ``servicebus_pair`` in the environment or the metadata database, or by
    the state that its tasks keep, wherever its connection is.

    :param others: connection ids of pairs that have state.
    """
    conn_ids = sorted({*_in_environment(), *_in_database(), *others})
    return {conn_id: _settings(conn_id) for conn_id in conn_ids}


def _settings(conn_id: str) -> PairSettings | str:
    try:
        return ServiceBusPairHook(conn_id).get_settings()
    except (PairError, AirflowException) as error:
        return str(error)


def _in_environment() -> list[str]:
    names = [name.removeprefix(_VARIABLE_PREFIX).lower() for name in os.environ if name.startswith(_VARIABLE_PREFIX)]
    return [conn_id for conn_id in names if _is_pair(conn_id)]


def _is_pair(conn_id: str) -> bool:
    from airflow.secrets.environment_variables import EnvironmentVariablesBackend

    try:
        connection = EnvironmentVariablesBackend().get_connection(conn_id)
    except (AirflowException, ValueError):  # not ours to report: somebody else's connection cannot be read
        return False
    return connection is not None and connection.conn_type == ServiceBusPairHook.conn_type


def _in_database() -> list[str]:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select

    ours = select(Connection.conn_id).where(Connection.conn_type == ServiceBusPairHook.conn_type)
    with create_session() as session:
        return list(session.scalars(ours))
