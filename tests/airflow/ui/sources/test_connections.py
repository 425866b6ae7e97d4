from __future__ import annotations

import json
from pathlib import Path

import pytest

from servicebus_pair.core import PairSettings
from servicebus_pair.ui.sources.connections import load_pair_settings
from tests.airflow.conftest import UNREACHABLE, define_connection


def test_pairs_are_found_in_environment_and_database(airflow_db: Path, monkeypatch: pytest.MonkeyPatch):  # noqa: ARG001
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session

    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")  # as in the API server, which may read the database
    define_connection(monkeypatch, UNREACHABLE, conn_id="stated_pair")
    monkeypatch.setenv("AIRFLOW_CONN_BROKEN", "{")
    define_connection(monkeypatch, {}, conn_id="other", conn_type="http")
    with create_session() as session:
        session.add(Connection(conn_id="stored_pair", conn_type="servicebus_pair", extra=json.dumps(UNREACHABLE)))
    try:
        found = load_pair_settings(["pair_with_state"])
    finally:
        with create_session() as session:
            session.query(Connection).filter(Connection.conn_id == "stored_pair").delete()

    assert {conn_id: isinstance(settings, PairSettings) for conn_id, settings in found.items()} == {
        "pair_with_state": False,
        "stated_pair": True,
        "stored_pair": True,
    }
    assert "pair_with_state" in str(found["pair_with_state"])
