"""A pair for synchronous code, such as a plain Python task."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self, TypeVar

from servicebus_pair.airflow_runtime.cancellable_run import CancellableRun, RunSession
from servicebus_pair.airflow_runtime.message_spec import MessageReader, MessageValue
from servicebus_pair.core.errors import PairClosedError

if TYPE_CHECKING:
    from servicebus_pair.core import NamespacePair, PairSender, SendResult

ResultT = TypeVar("ResultT")


class PairConnection:
    """A context manager that opens a pair and blocks until each call is done; made by ``ServiceBusPairHook.get_conn``.

    A time limit of the task cancels the running call, and the pair is closed first.
    """

    def __init__(self, opened: Callable[[], AbstractAsyncContextManager[NamespacePair]]) -> None:
        self._opened = opened
        self._stack = ExitStack()
        self._session: RunSession | None = None
        self._pair: NamespacePair | None = None
        self._senders: dict[str, PairSender] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._session = stack.enter_context(CancellableRun().session())
            self._pair = stack.enter_context(self._session.enter(self._opened()))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._senders.clear()
        self._pair = self._session = None
        self._stack.close()

    def send(
        self,
        entity: str,
        messages: MessageValue | Iterable[Any],
        *,
        timeout: timedelta | float | None = None,
    ) -> SendResult:
        """Send to an entity, or to the backlog while it is failed over.

        :param entity: path of a queue or topic.
        :param messages: one or several texts, bytes, mappings as in ``ServiceBusPairSendOperator``, or messages of the
            Azure SDK. Those without an id get a random one, so give ids where a retry must repeat them.
        :param timeout: for the whole send; no limit when not given.
        :raises ConfigurationError: a message is invalid; nothing was sent.
        :raises SendError: not every message was accepted.
        """
        session, pair = self._open()
        if entity not in self._senders:
            self._senders[entity] = self._stack.enter_context(session.enter(pair.sender(entity)))
        seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
        return session.run(self._senders[entity].send(list(_built(messages)), timeout=seconds))

    def run(self, call: Callable[[NamespacePair], Coroutine[Any, Any, ResultT]]) -> ResultT:
        """Run any coroutine of the pair, such as ``run(lambda pair: pair.ping("flights"))``."""
        session, pair = self._open()
        return session.run(call(pair))

    def _open(self) -> tuple[RunSession, NamespacePair]:
        if self._session is None or self._pair is None:
            raise PairClosedError("the pair is not open: use it inside `with hook.get_conn() as pair:`")
        return self._session, self._pair


def _built(messages: Any) -> Iterator[Any]:
    single = isinstance(messages, str | bytes | Mapping) or not isinstance(messages, Iterable)
    reader = MessageReader(seed=uuid.uuid4().hex)
    for position, each in enumerate([messages] if single else messages):
        ours = isinstance(each, str | bytes | Mapping)
        yield reader.read(each, where=f"messages[{position}]", position=position).build() if ours else each
