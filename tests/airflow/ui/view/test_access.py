from __future__ import annotations

from servicebus_pair.core import read_pair_settings
from servicebus_pair.ui.sources.airflow_queries import Records
from servicebus_pair.ui.sources.event_queries import HealthEvent
from servicebus_pair.ui.sources.run_queries import Run
from servicebus_pair.ui.view.access import dag_ids_of, without_dags
from servicebus_pair.ui.view.view_builder import build_pair_view
from tests.airflow.conftest import UNREACHABLE


def test_the_dag_that_ended_an_incident_is_hidden_also_if_its_run_is_not_shown():
    extra = {"payload": {"entities": ["flights"]}}
    ending = Run("hidden", "first", "success", ended_at=20.0)
    later = [Run("shown", str(number), "success", ended_at=30.0 + number) for number in range(100)]
    events = [HealthEvent("backlog", 10.0, extra, None, (ending, *later))]
    view = build_pair_view("pair", read_pair_settings(UNREACHABLE), None, Records(events={"pair": events}), now=500.0)
    (incident,) = view.incidents
    assert (incident.ended_by, incident.end_reported, {run.dag_id for run in incident.runs}) == (
        "hidden",
        True,
        {"shown"},
    )

    assert dag_ids_of(view, []) == {"hidden", "shown"}
    assert "hidden" not in repr(without_dags(view, [], {"hidden"}))
