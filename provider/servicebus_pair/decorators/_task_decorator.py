"""What the task decorators of this provider have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from airflow.sdk import XComArg

from servicebus_pair.airflow_runtime.airflow_version import TaskDecorator, _TaskDecorator


class _PairTaskDecorator(_TaskDecorator[Any, Any, Any]):
    """Adds the inlets and outlets to mapped tasks, for which Airflow creates no operator when it parses the DAG."""

    def expand(self, **map_kwargs: Any) -> XComArg:
        """Map the function over these arguments."""
        return self._with_assets(super().expand(**map_kwargs))

    def expand_kwargs(self, kwargs: Any, *, strict: bool = True) -> XComArg:
        """Map the function over mappings of arguments."""
        return self._with_assets(super().expand_kwargs(kwargs, strict=strict))

    def _with_assets(self, mapped: XComArg) -> XComArg:
        task = cast("Any", mapped).operator
        place = {"dag": task.dag, "task_group": task.task_group}
        self.operator_class.add_assets(task.partial_kwargs, place, self.kwargs.get("default_args") or {})
        return mapped


def task_decorator(
    function: Callable[..., Any] | None, *, operator_class: type[Any], multiple_outputs: bool, kwargs: Mapping[str, Any]
) -> TaskDecorator:
    """Return the decorated function, or without one the decorator."""

    def decorate(function: Callable[..., Any]) -> _PairTaskDecorator:
        return _PairTaskDecorator(
            function=function, operator_class=operator_class, multiple_outputs=multiple_outputs, kwargs=dict(kwargs)
        )

    return cast("TaskDecorator", decorate if function is None else decorate(function))
