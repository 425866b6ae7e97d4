"""``ServiceBusPairSendOperator``: sends messages, to the backlog while the primary is down."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence, Sized
from os import PathLike
from typing import Any, ClassVar, Final

from airflow.sdk import Context, XComArg

from servicebus_pair.airflow_runtime.message_spec import MessageReader, MessageValue
from servicebus_pair.airflow_runtime.pair_task import failing_at_once
from servicebus_pair.airflow_runtime.validators import optional, storage_path, text
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators._support.json_lines import JsonLinesFile, JsonLinesText, LineSource, read_messages
from servicebus_pair.operators._support.send_task import BaseSendOperator, state_nothing_sent

__all__ = ["ServiceBusPairSendOperator"]

_SOURCES: Final = ("messages", "json_lines", "path")


def _check_messages(name: str, value: Any) -> None:  # noqa: ARG001  the signature of a check
    MessageReader(seed="").read_all(value)


def _check_json_lines(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ConfigurationError(f"{name} is {type(value).__name__}: it must be a text of JSON lines")


class ServiceBusPairSendOperator(BaseSendOperator):
    """Sends messages to a queue or topic of the primary, or to the backlog while that entity is failed over.

    At least once. A retried task sends every message again with the same id: the given one, or one derived from the
    task instance and the message's index or line number. An outage of the primary needs no retry, because the send
    itself diverts; a retry helps when primary and backlog were both unreachable.

    All messages are validated before the first is sent, so a file is read twice, in parts that fit in memory. If it
    changes in between, messages are sent up to the first invalid one.

    The result is ``{"entity", "sent", "primary", "diverted", "spooled", "backlog_queues", "operations"}``: counts and
    names. A failover or recovery that the send detects is shared with other tasks and emitted as an asset event.
    Message bodies never appear in XComs, logs or rendered templates of this task.

    :param entity: path of the queue or topic (templated).
    :param messages: texts, bytes, or mappings with ``body`` (a mapping or list is sent as JSON) and any of
        ``message_id``, ``session_id``, ``subject``, ``content_type``, ``correlation_id``, ``partition_key``,
        ``reply_to``, ``reply_to_session_id``, ``to``, ``time_to_live`` in seconds, ``scheduled_enqueue_time`` in
        ISO 8601, ``application_properties``; or the output of a task that returns such a list (templated).
    :param json_lines: instead of ``messages``: a text with one message per line, as JSON (templated).
    :param path: instead of ``messages``: a file of such lines, local or in an object store
        (``s3://bucket/messages.jsonl``), decompressed if its name ends in ``.gz``, ``.bz2``, ``.xz`` or ``.zst``
        (templated).
    :param storage_conn_id: connection of the object store (templated).
    :param defaults: values for fields that a message does not set: any of the above except ``body`` and
        ``message_id`` (templated).
    :param ledger: folder, or URL of one in an object store, for the record of each
        accepted message; no ledger when not given (templated).
    :param timeout: for the whole send: a ``timedelta`` or seconds; no limit when not given (templated).
    :param spool: the absolute path of a folder, or the URL of one in an object store, for messages that neither
        namespace takes; that of the connection when not given or an empty text (templated).
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter or a message is invalid; the message is named by index or line, field and
        value. Nothing was sent.
    :raises SendError: not every message was accepted; the error says how many were.
    :raises MessagesRefusedError: the service refused some messages; all others were accepted. No retry sends a refused
        message again.
    """

    template_fields = (*BaseSendOperator.template_fields, *_SOURCES, "storage_conn_id")
    parameter_checks: ClassVar = {
        "messages": optional(_check_messages),
        "json_lines": optional(_check_json_lines),
        "path": optional(storage_path),
        "storage_conn_id": optional(text),
    }
    message_content: ClassVar[Collection[str]] = (*BaseSendOperator.message_content, "messages", "json_lines")
    template_fields_renderers: ClassVar = {"defaults": "json"}

    def __init__(
        self,
        *,
        messages: Sequence[MessageValue] | XComArg | None = None,
        json_lines: str | None = None,
        path: str | PathLike[str] | XComArg | None = None,
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
        self.check_parameters()

    @failing_at_once()
    def execute(self, context: Context) -> dict[str, Any]:
        """Validate all messages, then send them."""
        reader = self.reader(context)
        if self.messages is not None:
            with state_nothing_sent():
                specs = reader.read_all(_Redacted.unwrap(self.messages))
            return self.send(context, specs, total=len(specs))
        with state_nothing_sent():
            source = self._line_source()
            count = sum(1 for _ in read_messages(source, reader))
        self.log.info("%s: %d messages are valid", source.name, count)
        return self.send(context, read_messages(source, reader), total=count)

    def _line_source(self) -> LineSource:
        if self.path is not None:
            return JsonLinesFile(storage_path("path", self.path), self.storage_conn_id)
        lines = _Redacted.unwrap(self.json_lines)
        _check_json_lines("json_lines", lines)
        return JsonLinesText(lines)

    def _do_render_template_fields(
        self, parent: Any, template_fields: Iterable[str], context: Context, jinja_env: Any, seen_oids: set[int]
    ) -> None:
        """Render, then redact the fields that may hold bodies, because Airflow stores rendered fields."""
        super()._do_render_template_fields(parent, template_fields, context, jinja_env, seen_oids)
        self.messages = _Redacted.wrap(self.messages)
        self.json_lines = _Redacted.wrap(self.json_lines)


class _Redacted:
    """Wraps a rendered field that holds message bodies, because Airflow stores and shows such fields.

    Its text form shows at most the number of messages.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    @classmethod
    def wrap(cls, value: Any) -> _Redacted | None:
        """Wrap ``value``, unless it is ``None`` or already wrapped."""
        return value if value is None or isinstance(value, cls) else cls(value)

    @staticmethod
    def unwrap(value: Any) -> Any:
        """Return the wrapped value, or ``value`` itself when it was not rendered."""
        return value.value if isinstance(value, _Redacted) else value

    def serialize(self) -> str:
        """Return what Airflow stores."""
        return repr(self)

    def __repr__(self) -> str:
        is_list = isinstance(self.value, Sized) and not isinstance(self.value, str | bytes)
        return f"{len(self.value)} messages, not shown" if is_list else "not shown"
