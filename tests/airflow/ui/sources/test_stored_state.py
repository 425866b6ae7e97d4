"""The state of the pairs as the page reads and writes it, with Airflow's Variables before Airflow 3.3."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from servicebus_pair.airflow_runtime.airflow_version import has
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


@pytest.mark.skipif(not has("asset_state"), reason="state lies in Variables")
@pytest.mark.usefixtures("fresh_state")
def test_a_pair_with_more_state_than_is_read_keeps_the_newest_and_crowds_out_no_other() -> None:
    from airflow.models.asset import AssetModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.utils.session import create_session

    now = datetime.now(UTC)
    with create_session() as session:
        assets = [AssetModel(name=f"servicebus_pair.{name}", uri=f"x://{name}") for name in ("large", "small")]
        session.add_all(assets)
        session.flush()
        large, small = (each.id for each in assets)
        rows = [(small, 0, "1", 99), *((large, number, json.dumps("x" * 500_000), number) for number in range(20))]
        for asset, number, value, age in rows:
            at = now - timedelta(seconds=age)
            session.add(AssetStateStoreModel(asset_id=asset, key=f"health/{number}", value=value, updated_at=at))
        session.flush()
        states = read_states(session)
        session.rollback()

    assert states["small"] == {"health/0": 1}
    assert sorted(states["large"]) == sorted(f"health/{number}" for number in range(8))
