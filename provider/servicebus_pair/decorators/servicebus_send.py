"""``@task.servicebus_send``: sends the messages that a Python function returns or yields."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from airflow.sdk import Context

from servicebus_pair.airflow_runtime.airflow_version import (
    DecoratedOperator,
    TaskDecorator,
    context_merge,
    determine_kwargs,
)
from servicebus_pair.airflow_runtime.message_spec import MessageDefaults, MessageReader, MessageSpec
from servicebus_pair.airflow_runtime.pair_task import failing_at_once
from servicebus_pair.airflow_runtime.task_ledger import StoragePath
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.decorators._task_decorator import task_decorator
from servicebus_pair.operators._support.send_task import BaseSendOperator, state_nothing_sent

__all__ = ["servicebus_send_task"]


class _SendDecoratedOperator(DecoratedOperator, BaseSendOperator):
    """Runs a function and sends its messages; see :func:`servicebus_send_task`."""

    template_fields = (*DecoratedOperator.template_fields, *BaseSendOperator.template_fields)
    template_fields_renderers: ClassVar = {
        **DecoratedOperator.template_fields_renderers,
        "defaults": "json",
    }
    custom_operator_name: str = "@task.servicebus_send"

    def __init__(
        self,
        *,
        python_callable: Callable[..., Any],
        op_args: Collection[Any] | None = None,
        op_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if inspect.iscoroutinefunction(python_callable) or inspect.isasyncgenfunction(python_callable):
            raise ConfigurationError(
                f"{python_callable.__name__} is asynchronous: allowed are functions that return or yield messages; "
                "await in a separate task (@task) and send its result, or use asyncio.run"
            )
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **kwargs)

    @failing_at_once()
    def execute(self, context: Context) -> dict[str, Any]:
        """Call the function and send the messages that it returns or yields."""
        reader = self.reader(context)
        context_merge(context, self.op_kwargs)
        kwargs = determine_kwargs(self.python_callable, self.op_args, context)
        returned = self.python_callable(*self.op_args, **kwargs)
        name = getattr(self.python_callable, "__name__", "the function")
        if isinstance(returned, str | bytes | Mapping):
            returned = [returned]
        if isinstance(returned, Sequence):
            with state_nothing_sent():
                specs = reader.read_all(returned)
            return self.send(context, specs, total=len(specs))
        if isinstance(returned, Iterable):
            return self.send(context, _read(returned, reader))
        raise ConfigurationError(
            f"{name} returned {type(returned).__name__}: it must return or yield messages (texts, bytes or mappings); "
            "nothing was sent"
        )


def _read(values: Iterable[Any], reader: MessageReader) -> Iterator[MessageSpec]:
    for index, value in enumerate(values):
        yield reader.read(value, where=f"messages[{index}]", position=index)


def servicebus_send_task(
    python_callable: Callable[..., Any] | None = None,
    *,
    entity: str = "",
    defaults: MessageDefaults | Mapping[str, Any] | str | None = None,
    ledger: StoragePath | None = None,
    timeout: timedelta | float | str | None = None,
    spool: StoragePath | None = None,
    multiple_outputs: bool = False,
    **kwargs: Any,
) -> TaskDecorator:
    """Send what a function returns (a message or a list) or yields; registered as ``@task.servicebus_send``.

    A message is a text, bytes, or a mapping as in ``ServiceBusPairSendOperator``. A returned list is validated before
    the first message is sent. Yielded messages are sent in chunks, with bounded memory; if the function raises or
    yields something else, the error says how many messages were accepted.

    At least once. Generated ids are derived from the task instance and the message's index, so a retried task sends
    the same ids again if the function yields the same messages in the same order.

    The result is that of ``ServiceBusPairSendOperator``: counts and names, never the messages.

    :param entity: path of the queue or topic (templated).
    :param defaults: values for fields that a message does not set (templated).
    :param ledger: folder for the record of each accepted message; no ledger when not given (templated).
    :param timeout: for the whole send, including the time that the function takes to yield: a ``timedelta`` or seconds
        (templated).
    :param spool: a folder or a URL for messages that neither namespace takes, as in ``ServiceBusPairSendOperator``;
        that of the connection when not given (templated).
    :param kwargs: ``servicebus_pair_conn_id`` and any parameter of an operator.
    :raises ConfigurationError: a parameter or a message is invalid.
    :raises SendError: not every message was accepted; the error says how many were.
    """
    kwargs |= {"entity": entity, "defaults": defaults, "ledger": ledger, "timeout": timeout, "spool": spool}
    return task_decorator(
        python_callable, operator_class=_SendDecoratedOperator, multiple_outputs=multiple_outputs, kwargs=kwargs
    )
