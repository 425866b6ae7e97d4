"""What tasks left in Airflow's database and folder."""

from __future__ import annotations

import json
import sqlite3
from typing import Any

from tests.airflow.conftest import AIRFLOW_HOME, CONN_ID
from tests.airflow.support.versions import skip_without


def all_files() -> bytes:
    """The content of all files of Airflow's folder except the database."""
    # Closing the database file would release the locks that SQLite holds on it in this process.
    files = [file for file in AIRFLOW_HOME.rglob("*") if file.is_file() and not file.name.startswith("airflow.db")]
    return b"".join(file.read_bytes() for file in files)


def database_dump() -> str:
    """The whole database as SQL."""
    with sqlite3.connect(AIRFLOW_HOME / "airflow.db") as database:
        return "\n".join(database.iterdump())


def saved_activity() -> list[dict[str, Any]]:
    """The activity totals of all tasks, the oldest first."""
    skip_without("task_state")
    from airflow.models.task_state_store import TaskStateStoreModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    found = select(TaskStateStoreModel.value).where(TaskStateStoreModel.key == f"servicebus_pair/{CONN_ID}")
    with create_session() as session:
        return [json.loads(value) for value in session.scalars(found.order_by(TaskStateStoreModel.id))]
