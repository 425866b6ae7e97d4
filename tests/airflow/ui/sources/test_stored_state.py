"""The state of the pairs as the page reads and writes it, with Airflow's Variables before Airflow 3.3."""

from __future__ import annotations

import json

import pytest

from servicebus_pair.ui.sources import stored_state
from servicebus_pair.ui.sources.stored_state import StoredState, read_states


@pytest.mark.usefixtures("airflow_db")
def test_before_airflow_33_the_state_lies_in_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session

    monkeypatch.setattr(stored_state, "has", lambda _: False)
    with create_session() as session:
        Variable.set("servicebus_pairs", "of somebody else", session=session)
        one, other = (StoredState(session, conn_id=f"state_{name}", asset_id=1) for name in ("one", "other"))
        one.set("health/flights", json.dumps({"state": "healthy"}))
        other.set("health/hotels", "[1]")

        assert one.get("health/flights") == json.dumps({"state": "healthy"})
        assert one.get("health/hotels") is None
        ours = {name: state for name, state in read_states(session).items() if name.startswith("state_")}
        assert ours == {"state_one": {"health/flights": {"state": "healthy"}}, "state_other": {"health/hotels": [1]}}
        session.rollback()
