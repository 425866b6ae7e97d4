"""What can be done on the page, and which DAG does it. Pure.

An action is a run of a DAG, or a value in the pair's state that running tasks obey. The DAG is one of those with a task
on the pair (its asset among the task's inlets), and its id ends as the table says; of several the one that begins with
``servicebus_pair``, as the example does.

==================  ================  ==================================================
action              ends in           form, beside the reason
==================  ================  ==================================================
``provision``       ``_provision``    ``plan_only``
``drill``           ``_drill``        ``entities``, ``messages``
``fail_over``       ``_by_hand``      ``entities``, ``hold_minutes``
``fail_back``       ``_by_hand``      ``entities``
``start_syphon``    ``_recovery``     ``rate``
``pause_syphon``    a value of state
``resume_syphon``   a value of state
``throttle_syphon`` a value of state  ``rate``
``redrive``         ``_redrive``      ``rate``
``plan_cleanup``    ``_cleanup``      ``what``
==================  ================  ==================================================
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Final

from servicebus_pair.ui.records import ActionDag
from servicebus_pair.ui.snapshot import ActionView

__all__ = ["ActionName", "view_of_action", "views_of_actions"]


class ActionName(StrEnum):
    """All actions."""

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


_EXAMPLE: Final = "servicebus_pair"
_ENDINGS: Final[Mapping[ActionName, str]] = MappingProxyType(
    {
        ActionName.PROVISION: "_provision",
        ActionName.DRILL: "_drill",
        ActionName.FAIL_OVER: "_by_hand",
        ActionName.FAIL_BACK: "_by_hand",
        ActionName.START_SYPHON: "_recovery",
        ActionName.REDRIVE: "_redrive",
        ActionName.PLAN_CLEANUP: "_cleanup",
    }
)


def views_of_actions(dags: Sequence[ActionDag], *, has_state: bool) -> list[ActionView]:
    """Return every action, and whether it can be done.

    :param dags: those with a task on the pair.
    :param has_state: the pair has a state: some DAG uses it.
    """
    return [view_of_action(name, dags, has_state=has_state) for name in ActionName]


def view_of_action(name: ActionName, dags: Sequence[ActionDag], *, has_state: bool) -> ActionView:
    """Return one action, and whether it can be done; the parameters as in :func:`views_of_actions`."""
    if name not in _ENDINGS:
        problem = None if has_state else "no DAG uses this pair, so it has no state"
        return ActionView(name=name.value, problem=problem)
    ending = _ENDINGS[name]
    found = [dag for dag in dags if dag.dag_id.endswith(ending)]
    if len(found) > 1:
        found = [dag for dag in found if dag.dag_id == _EXAMPLE + ending] or found
    if len(found) != 1:
        ids = ", ".join(dag.dag_id for dag in found)
        return ActionView(
            name=name.value,
            problem=f"several DAGs could do it: {ids}"
            if found
            else f"no DAG on this pair has an id ending in {ending}",
        )
    (dag,) = found
    problem = None
    if dag.broken:
        problem = f"the DAG {dag.dag_id} has import errors"
    elif dag.paused:
        problem = f"the DAG {dag.dag_id} is paused: switch it on first"
    return ActionView(name=name.value, dag_id=dag.dag_id, problem=problem)
