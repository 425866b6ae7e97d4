from __future__ import annotations

import re

import pytest

from servicebus_pair.ui.sources.airflow_queries import PairDag
from servicebus_pair.ui.view.action_catalogue import ActionName, build_action_view

EXAMPLE = PairDag("servicebus_pair_drill", paused=False, has_import_errors=False)
OTHER = PairDag("flights_drill", paused=False, has_import_errors=False)


@pytest.mark.parametrize("dags", [[EXAMPLE], [OTHER, EXAMPLE]])
def test_the_example_dag_is_preferred(dags: list[PairDag]):
    view = build_action_view(ActionName.DRILL, dags, has_state=True)

    assert (view.dag_id, view.problem) == ("servicebus_pair_drill", None)


@pytest.mark.parametrize(
    ("dags", "problem"),
    [
        ([], "no DAG of this pair has an id ending in _drill"),
        ([OTHER, PairDag("gates_drill", paused=False, has_import_errors=False)], "several DAGs .*flights_drill, gates"),
        ([PairDag("flights_drill", paused=True, has_import_errors=False)], "paused: unpause it first"),
        ([PairDag("flights_drill", paused=True, has_import_errors=True)], "has import errors"),
    ],
)
def test_unavailable_action_has_a_reason(dags: list[PairDag], problem: str):
    view = build_action_view(ActionName.DRILL, dags, has_state=True)

    assert re.search(problem, str(view.problem))


@pytest.mark.parametrize(("has_state", "problem"), [(True, None), (False, "no DAG uses this pair, so it has no state")])
def test_pausing_the_syphon_needs_the_state_of_the_pair(has_state: bool, problem: str | None):
    assert build_action_view(ActionName.PAUSE_SYPHON, [], has_state=has_state).problem == problem
