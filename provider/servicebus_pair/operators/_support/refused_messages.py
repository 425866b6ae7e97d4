"""The messages of a task that the service refused, which a retry must not send again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from servicebus_pair.airflow_runtime.message_spec import MessageSpec
from servicebus_pair.airflow_runtime.state.accessor import TaskState
from servicebus_pair.core.errors import PairError, SendError

__all__ = ["MessagesRefusedError", "RefusedMessages"]

_KEY: Final = "servicebus_pair/refused"
# Airflow stores at most 64 KB under a key, and an id has at most 128 characters.
_MAX_REMEMBERED: Final = 400
_SHOWN: Final = 10


class MessagesRefusedError(PairError):
    """The service refused messages and accepted all others; sending them again unchanged is useless."""


class RefusedMessages:
    """The ids of refused messages, of this try and of earlier ones; kept in the state of the task."""

    def __init__(self) -> None:
        self._state = TaskState()
        self._ids: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._ids)

    async def load(self) -> None:
        """Read what earlier tries were refused."""
        if self._state.available:
            self._ids = dict.fromkeys(await self._state.get(_KEY) or ())

    async def save(self) -> None:
        """Keep the ids for the next try."""
        if self._state.available and self._ids:
            await self._state.set(_KEY, list(self._ids)[:_MAX_REMEMBERED])

    def without(self, specs: Iterable[MessageSpec]) -> Iterator[MessageSpec]:
        """Return the messages that were not refused."""
        return (spec for spec in specs if spec.message_id not in self._ids)

    def add(self, error: SendError) -> bool:
        """Add what a send was refused; return whether all of its other messages were accepted."""
        self._ids |= dict.fromkeys(_message_id(each) for each in error.refused)
        return bool(error.refused) and len(error.unsent) == len(error.refused)

    def raise_if_any(self, entity: str, *, accepted: int) -> None:
        """Raise unless no message was refused. :raises MessagesRefusedError: naming the first of them."""
        if self._ids:
            shown = ", ".join(list(self._ids)[:_SHOWN]) + (", ..." if len(self._ids) > _SHOWN else "")
            raise MessagesRefusedError(
                f"the service refused {len(self._ids)} messages for {entity} (message ids {shown}) and accepted the "
                f"other {accepted} of this try: correct them and send only these again"
            )


def _message_id(message: Any) -> str:
    return str(message.properties.message_id)
