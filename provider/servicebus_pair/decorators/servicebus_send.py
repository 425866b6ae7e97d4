"""``@task.servicebus_send``: sends what a Python function returns or yields, failover-aware."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

from airflow.sdk import Context
from airflow.sdk.bases.decorator import (
    DecoratedOperator,
    TaskDecorator,
    determine_kwargs,
    task_decorator_factory,
)
from airflow.sdk.definitions.context import context_merge

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators.messages import MessageDefaults, MessageReader, MessageSpec
from servicebus_pair.operators.sending import SendTask, before_sending

__all__ = ["servicebus_send_task"]


class _SendDecoratedOperator(DecoratedOperator, SendTask):
    """Runs a function and sends its messages; see :func:`servicebus_send_task`."""

    template_fields = (*DecoratedOperator.template_fields, *SendTask.template_fields)
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
                "await in a task of its own (@task) and send what it returns, or use asyncio.run in an ordinary one"
            )
        super().__init__(python_callable=python_callable, op_args=op_args, op_kwargs=op_kwargs, **kwargs)

    def execute(self, context: Context) -> dict[str, Any]:
        """Call the function and send what it returns, or yields, as it comes."""
        reader = self.reader(context)
        context_merge(context, self.op_kwargs)
        kwargs = determine_kwargs(self.python_callable, self.op_args, context)
        given = self.python_callable(*self.op_args, **kwargs)
        name = getattr(self.python_callable, "__name__", "the function")
        if isinstance(given, str | bytes | Mapping):
            given = [given]
        if isinstance(given, Sequence):
            with before_sending():
                specs = reader.read_all(given)
            return self.send(context, specs, of=len(specs))
        if isinstance(given, Iterable):
            return self.send(context, _read(given, reader))
        raise ConfigurationError(
            f"{name} returned {type(given).__name__}: it must return or yield messages (texts, bytes or mappings); "
            "nothing was sent"
        )


def _read(given: Iterable[Any], reader: MessageReader) -> Iterator[MessageSpec]:
    for index, value in enumerate(given):
        yield reader.read(value, where=f"messages[{index}]", place=index)


def servicebus_send_task(
    python_callable: Callable[..., Any] | None = None,
    *,
    entity: str = "",
    defaults: MessageDefaults | Mapping[str, Any] | str | None = None,
    ledger: str | None = None,
    timeout: float | None = None,
    **kwargs: Any,
) -> TaskDecorator:
    """Send what a function returns (a message or a list) or yields; registered as ``@task.servicebus_send``.

    A message is a text, bytes, or a mapping as in ``ServiceBusPairSendOperator``. A list is checked
    before the first message is sent. What is yielded is sent as it comes, in parts, and a bounded number
    of messages is in memory; if the function raises, or yields what is no message, the error says how many
    were accepted. At least once: ids that are not given are made from the task instance and the place of
    the message, so a function that yields the same in the same order repeats them when the task is retried.

    The task's result is that of ``ServiceBusPairSendOperator``: counts and names, never the messages.

    :param entity: path of the queue or topic (templated).
    :param defaults: fields that every message has which has no own (templated).
    :param ledger: folder for the record of each accepted message; no ledger when not given (templated).
    :param timeout: seconds for the whole send, the function's own time while it yields included.
    :param kwargs: ``conn_id`` and any parameter of an operator.
    :raises ConfigurationError: a parameter or a message is wrong.
    :raises SendError: not every message was accepted; it says how many were.
    """
    return task_decorator_factory(
        python_callable=python_callable,
        decorated_operator_class=_SendDecoratedOperator,
        entity=entity,
        defaults=defaults,
        ledger=ledger,
        timeout=timeout,
        **kwargs,
    )
