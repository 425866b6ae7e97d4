"""``ServiceBusPairSendOperator``: sends messages from a DAG, failover-aware."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from os import PathLike
from typing import Any, ClassVar, Final

from airflow.sdk import Context

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators.concealing import Concealed
from servicebus_pair.operators.lines import JsonLines, LinesFile, LinesText, read_lines
from servicebus_pair.operators.messages import MessageReader, MessageValue
from servicebus_pair.operators.parameters import check_early
from servicebus_pair.operators.sending import SendTask, before_sending

__all__ = ["ServiceBusPairSendOperator"]

_SOURCES: Final = ("messages", "json_lines", "path")


class ServiceBusPairSendOperator(SendTask):
    """Sends messages to a queue or topic of the primary, or to the backlog while that is failed over.

    At least once. A retried task sends every message again with the same ids: those that were given,
    or ids made from the task instance and each message's place in the list or the number of its line. An
    outage is survived within the send itself, so a retry is for the case that primary and backlog were
    both unreachable.

    All messages are checked before the first is sent: a file is read twice, and memory holds a part of
    it at a time. One that changes in between is sent as far as it is in order.

    The result is ``{"entity", "sent", "primary", "diverted", "backlog_queues", "operations"}``, counts and
    names. A failover or recovery that the send finds is shared with other tasks and becomes an asset
    event. Bodies are in no XCom, log or rendered template of this task.

    :param entity: path of the queue or topic (templated).
    :param messages: texts, or mappings with ``body`` and any of ``message_id``, ``session_id``, ``subject``,
        ``content_type``, ``correlation_id``, ``partition_key``, ``reply_to``, ``reply_to_session_id``, ``to``,
        ``time_to_live`` in seconds, ``scheduled_enqueue_time`` in ISO 8601, ``application_properties``; or the
        output of a task that returns such a list (templated).
    :param json_lines: instead: a text with one such message a line, as a JSON string or object (templated).
    :param path: instead: a file of such lines, local or in an object store (``s3://bucket/messages.jsonl``), unpacked
        if its name ends in ``.gz``, ``.bz2``, ``.xz`` or ``.zst`` (templated).
    :param storage_conn_id: connection of the object store (templated).
    :param defaults: fields that every message has which has no own, as in ``messages``, all but ``body`` and
        ``message_id`` (templated).
    :param ledger: folder for the record of each accepted message; no ledger when not given (templated).
    :param timeout: seconds for the whole send; as long as it takes when not given.
    :param conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter or a message is wrong, named by index or line, field and value;
        nothing has been sent.
    :raises SendError: not every message was accepted; it says how many were.
    """

    template_fields = (*SendTask.template_fields, *_SOURCES, "storage_conn_id")
    template_fields_renderers: ClassVar = {"defaults": "json"}

    def __init__(
        self,
        *,
        messages: Sequence[MessageValue] | None = None,
        json_lines: str | None = None,
        path: str | PathLike[str] | None = None,
        storage_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.messages: Any = messages
        self.json_lines: Any = json_lines
        self.path = path
        self.storage_conn_id = storage_conn_id
        given = [name for name in _SOURCES if getattr(self, name) is not None]
        if len(given) != 1:
            raise ConfigurationError(
                f"{' and '.join(given) or 'no source'} given: allowed is one of {', '.join(_SOURCES)}"
            )
        check_early("messages", messages, _check_messages)
        if path is not None:
            check_early("path", path, _path)

    def execute(self, context: Context) -> dict[str, Any]:
        """Check all messages, then send them."""
        reader = self.reader(context)
        if self.messages is not None:
            with before_sending():
                specs = reader.read_all(Concealed.reveal(self.messages))
            return self.send(context, specs, of=len(specs))
        with before_sending():
            source = self._lines()
            count = sum(1 for _ in read_lines(source, reader))
        self.log.info("%s: %d messages are in order", source.name, count)
        return self.send(context, read_lines(source, reader), of=count)

    def _lines(self) -> JsonLines:
        if self.path is not None:
            return LinesFile(_path("path", self.path), self.storage_conn_id)
        text = Concealed.reveal(self.json_lines)
        if not isinstance(text, str):
            raise ConfigurationError(f"json_lines is {type(text).__name__}: it must be a text of JSON lines")
        return LinesText(text)

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """Render, and keep what may hold bodies from the page of rendered templates."""
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        self.messages = Concealed.around(self.messages)
        self.json_lines = Concealed.around(self.json_lines)


def _check_messages(name: str, value: Any) -> None:  # noqa: ARG001  the shape of a check
    if value is not None:
        MessageReader(seed="").read_all(value)


def _path(name: str, value: Any) -> str:
    # A path of any kind, which those of Airflow's object storage are too.
    if not (isinstance(value, str) or hasattr(value, "joinpath")) or not str(value):
        raise ConfigurationError(
            f"{name} is {value!r}: it must be the path or address of a file, such as s3://bucket/messages.jsonl"
        )
    return str(value)
