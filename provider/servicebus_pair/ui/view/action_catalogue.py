"""Available actions and the DAG that performs each.

An action triggers a DAG, or changes a value of state that running tasks poll. The DAG is the one whose id has the
suffix below among those with a task on the pair, that is, with the pair's asset among the task's inlets. If several
match, the example DAG ``servicebus_pair`` plus suffix is preferred.

===================  ==============  ==============================
action               DAG id suffix   form fields besides the reason
===================  ==============  ==============================
``provision``        ``_provision``  ``plan_only``
``drill``            ``_drill``      ``entities``, ``messages``
``fail_over``        ``_by_hand``    ``entities``, ``hold_minutes``
``fail_back``        ``_by_hand``    ``entities``
``start_syphon``     ``_recovery``   ``rate``
``pause_syphon``     (state)
``resume_syphon``    (state)
``throttle_syphon``  (state)         ``rate``
``redrive``          ``_redrive``    ``rate``
``plan_cleanup``     ``_cleanup``    ``what``
===================  ==============  ==============================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from servicebus_pair.ui.sources.airflow_queries import PairDag
from servicebus_pair.ui.views import ActionView


class ActionName(StrEnum):
    """Names of all actions, as in the API."""

    PROVISION = "provision"
    DRILL = "drill"
    FAIL_OVER = "fail_over"
    FAIL_BACK = "fail_back"
    START_SYPHON = "start_syphon"
    PAUSE_SYPHON = "pause_syphon"
    RESUME_SYPHON = "resume_syphon"
    THROTTLE_SYPHON = "throttle_syphon"
    REDRIVE = "redrive"
    PLAN_CLEANUP = "plan_cleanup"


_EXAMPLE_PREFIX: Final = "servicebus_pair"
_DAG_ID_SUFFIXES: Final[Mapping[ActionName, str]] = {
    ActionName.PROVISION: "_provision",
    ActionName.DRILL: "_drill",
    ActionName.FAIL_OVER: "_by_hand",
    ActionName.FAIL_BACK: "_by_hand",
    ActionName.START_SYPHON: "_recovery",
    ActionName.REDRIVE: "_redrive",
    ActionName.PLAN_CLEANUP: "_cleanup",
}


def build_action_view(name: ActionName, dags: Sequence[PairDag], *, has_state: bool) -> ActionView:
    """Return one action with its DAG, or the reason why it is unavailable.

    :param dags: DAGs with a task on the pair.
    :param has_state: the pair has an asset, and thus state: at least one DAG uses it.
    """
    if name not in _DAG_ID_SUFFIXES:
        return ActionView(name=name.value, problem=None if has_state else "no DAG uses this pair, so it has no state")
    suffix = _DAG_ID_SUFFIXES[name]
    matches = [dag for dag in dags if dag.dag_id.endswith(suffix)]
    if len(matches) > 1:
        matches = [dag for dag in matches if dag.dag_id == _EXAMPLE_PREFIX + suffix] or matches
    if not matches:
        return ActionView(name=name.value, problem=f"no DAG of this pair has an id ending in {suffix}")
    if len(matches) > 1:
        ids = ", ".join(dag.dag_id for dag in matches)
        return ActionView(name=name.value, problem=f"several DAGs have an id ending in {suffix}: {ids}")
    (dag,) = matches
    problem = None
    if dag.has_import_errors:
        problem = f"the DAG {dag.dag_id} has import errors"
    elif dag.paused:
        problem = f"the DAG {dag.dag_id} is paused: unpause it first"
    return ActionView(name=name.value, dag_id=dag.dag_id, problem=problem)
