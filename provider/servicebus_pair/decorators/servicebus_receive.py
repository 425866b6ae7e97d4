"""``@task.servicebus_receive``: hands messages to a Python function and completes them when it returns."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any, ClassVar, Final

from airflow.sdk import Context

from servicebus_pair.airflow_runtime.airflow_version import (
    DecoratedOperator,
    TaskDecorator,
    context_merge,
    determine_kwargs,
)
from servicebus_pair.airflow_runtime.pair_task import failing_at_once
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.decorators._task_decorator import task_decorator
from servicebus_pair.operators._support.receive_task import BaseReceiveOperator
from servicebus_pair.triggers.primary_health import check_event

__all__ = ["servicebus_receive_task"]

_MESSAGES: Final = "messages"


class _ReceiveDecoratedOperator(DecoratedOperator, BaseReceiveOperator):
    """Runs a function on messages; see :func:`servicebus_receive_task`."""

    template_fields = (*DecoratedOperator.template_fields, *BaseReceiveOperator.template_fields)
    template_fields_renderers: ClassVar = {**DecoratedOperator.template_fields_renderers}
    custom_operator_name: str = "@task.servicebus_receive"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if (
            inspect.iscoroutinefunction(python_callable)
            or _MESSAGES not in inspect.signature(python_callable).parameters
        ):
            raise ConfigurationError(
                f"{python_callable.__name__} must be a function with a parameter named {_MESSAGES}, which is not async"
            )
        op_kwargs = {_MESSAGES: [], **(op_kwargs or {})}
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **kwargs)
        self.check_parameters()

    @failing_at_once()
    def execute(self, context: Context) -> Any:
        """Receive and call the function, or wait in the triggerer."""
        return self._run(context, resumed=False)

    @failing_at_once()
    def resume(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Receive and call the function, now that there is a message or ``max_wait`` is over."""
        check_event(event, found=bool)
        return self._run(context, resumed=True)

    def _run(self, context: Context, *, resumed: bool) -> Any:
        # In one session, because the locks are renewed while the function runs.
        with self._cancellable.session() as session, session.enter(self.receiver()) as receiver:
            received = session.run(self.receive(receiver, resumed=resumed))
            if received is not None:
                try:
                    returned = self._call(context, [dict(message.fields) for message in received])
                except BaseException:
                    with suppress(Exception):  # a killed session; the messages come again all the same
                        session.run(receiver.abandon(received))
                    raise
                session.run(receiver.complete(received))
                return returned
        self.wait_in_triggerer()
        return None

    def _call(self, context: Context, messages: list[dict[str, Any]]) -> Any:
        op_kwargs = {**self.op_kwargs, _MESSAGES: messages}
        context_merge(context, op_kwargs)
        return self.python_callable(*self.op_args, **determine_kwargs(self.python_callable, self.op_args, context))


def servicebus_receive_task(
    python_callable: Callable[..., Any] | None = None,
    *,
    entity: str = "",
    max_messages: int | str = 100,
    max_wait: timedelta | float | str | None = 60.0,
    session_id: str | None = None,
    dead_letter: bool | str = False,
    properties: Mapping[str, Any] | None = None,
    multiple_outputs: bool = False,
    **kwargs: Any,
) -> TaskDecorator:
    """Hand messages to a function; registered as ``@task.servicebus_receive``.

    The function has a parameter ``messages``, a list of mappings as in the result of ``ServiceBusReceiveOperator``,
    which is empty when none arrived. The messages are locked while it runs, and completed when it returns; when it
    raises, they are abandoned, and the broker dead-letters those that fail too often. At least once: a task that is
    killed after its work and before the completion gets the same messages again.

    The parameters are those of ``ServiceBusReceiveOperator``.

    :raises ConfigurationError: a parameter is invalid.
    """
    kwargs |= {
        "entity": entity,
        "max_messages": max_messages,
        "max_wait": max_wait,
        "session_id": session_id,
        "dead_letter": dead_letter,
        "properties": properties,
    }
    return task_decorator(
        python_callable, operator_class=_ReceiveDecoratedOperator, multiple_outputs=multiple_outputs, kwargs=kwargs
    )
