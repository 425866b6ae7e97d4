"""Base class of the operator and of the task decorator that receive."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final

from servicebus_pair.airflow_runtime.airflow_version import conf
from servicebus_pair.airflow_runtime.pair_task import PairTask
from servicebus_pair.airflow_runtime.reserved_keys import RESERVED_KEYS
from servicebus_pair.airflow_runtime.validators import (
    boolean,
    duration,
    entity_path,
    flag,
    integer,
    mapping,
    optional,
    text,
)
from servicebus_pair.core.errors import ServiceError
from servicebus_pair.triggers.message_available import MessageAvailableTrigger

if TYPE_CHECKING:
    from servicebus_pair.core import InboundMessage, PairReceiver

__all__ = ["BaseReceiveOperator"]

# How long a deferrable task looks for messages in the worker.
_LOOK_SECONDS: Final = 1.0
# How long to wait for more messages once there is one.
_LINGER_SECONDS: Final = 1.0
_max_wait = duration(timedelta(0))
_max_messages = integer(1, 10_000)
_properties = optional(mapping)


class BaseReceiveOperator(PairTask):
    """Receives messages of the primary; the parameters are those of ``ServiceBusReceiveOperator``."""

    template_fields: Sequence[str] = ("entity", "max_messages", "max_wait", "session_id", "dead_letter", "properties")
    parameter_checks: ClassVar = {
        "entity": entity_path,
        "max_messages": _max_messages,
        "max_wait": optional(_max_wait),
        "session_id": optional(text),
        "dead_letter": boolean,
        "properties": _properties,
        "deferrable": flag,
    }
    portal_side = "primary"
    detects_health: ClassVar = False

    def __init__(
        self,
        *,
        entity: str,
        max_messages: int | str = 100,
        max_wait: timedelta | float | str | None = 60.0,
        session_id: str | None = None,
        dead_letter: bool | str = False,
        properties: Mapping[str, Any] | None = None,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.entity = entity
        self.max_messages = max_messages
        self.max_wait = max_wait
        self.session_id = session_id
        self.dead_letter = dead_letter
        self.properties = properties
        self.deferrable = deferrable

    @asynccontextmanager
    async def receiver(self) -> AsyncIterator[PairReceiver]:
        """Open the pair and a receiver."""
        async with (
            self.hook.pair() as pair,
            pair.receiver(
                entity_path("entity", self.entity),
                session_id=self.session_id or None,
                dead_letter=boolean("dead_letter", self.dead_letter),
            ) as receiver,
        ):
            receiver.reserved_keys = RESERVED_KEYS
            yield receiver

    async def receive(self, receiver: PairReceiver, *, resumed: bool) -> list[InboundMessage] | None:
        """Receive; return ``None`` to wait in the triggerer.

        :param resumed: the triggerer has waited and found a message.
        """
        may_defer = self.deferrable and not resumed
        try:
            received = await receiver.receive(
                max_messages=_max_messages("max_messages", self.max_messages),
                max_wait=min(_LOOK_SECONDS, self._wait_seconds()) if self.deferrable else self._wait_seconds(),
                linger=_LINGER_SECONDS,
                properties=_properties("properties", self.properties) or None,
                wait_for_primary=not may_defer,
            )
        except ServiceError as error:
            if may_defer and error.retriable:
                return None
            raise
        return received or (None if may_defer else [])

    def wait_in_triggerer(self) -> None:
        """Defer until there is a message, or ``max_wait`` is over."""
        seconds = self._wait_seconds()
        self.defer(
            trigger=MessageAvailableTrigger(
                servicebus_pair_conn_id=self.servicebus_pair_conn_id,
                entity=entity_path("entity", self.entity),
                max_wait=None if seconds == inf else seconds,
                session_id=self.session_id or None,
                dead_letter=boolean("dead_letter", self.dead_letter),
                properties=_properties("properties", self.properties) or None,
            ),
            method_name="resume",
        )

    def _wait_seconds(self) -> float:
        value = optional(_max_wait)("max_wait", self.max_wait)
        return inf if value is None else value.total_seconds()
