"""Peek-lock receiver of one session of a queue that requires sessions."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from azure.servicebus.aio import ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError

from servicebus_pair.core.model.errors import LockLostError, TimedOutError
from servicebus_pair.core.model.usage_meter import Operation
from servicebus_pair.core.sdk.link import LinkOwner
from servicebus_pair.core.sdk.receive_link import ReceiveLink
from servicebus_pair.core.sdk.received_message import ReceivedMessage


class SessionLink(ReceiveLink):
    """A receiver that accepts one session, whose lock it holds until it is closed or the lock expires.

    A link that fails does not accept another session by itself: each further call raises ``LockLostError``. One that
    was only browsed accepts its session again, since a peek also fails for a message that cannot be decoded.

    :param session_id: the session to accept; ``None`` for the next available one.
    :param wait: seconds that the service waits for an unlocked session with messages.
    :ivar locked_until: when the lock expires (service's clock, seconds since the Unix epoch), if the service said so.
    """

    def __init__(
        self,
        client: LinkOwner,
        path: str,
        create_handler: Callable[[], Any],
        *,
        should_stop: Callable[[], bool],
        session_id: str | None,
        wait: float,
    ) -> None:
        super().__init__(client, path, create_handler, should_stop=should_stop)
        self.locked_until: float | None = None
        self._wait = wait
        self._may_reopen = session_id is not None

    async def accept(self, *, timeout: float) -> str | None:
        """Accept the session and return its id; ``None`` if no unlocked session has messages.

        :param timeout: seconds in addition to those that the service waits.
        :raises SessionLockedError: another receiver holds the session that was asked for.
        """
        try:
            session_id = await self._call("accept a session of", self._accept, timeout=self._wait + timeout)
        except TimedOutError as error:
            # A peer that says nothing at all ends with another exception.
            if not isinstance(error.__cause__, OperationTimeoutError):
                raise
            self._client.meter.count(Operation.EMPTY_RECEIVE)
            return None
        self._create_handler = partial(self._reopen, self._create_handler)
        return session_id

    async def receive(self, *, max_messages: int, max_wait_time: float, timeout: float) -> list[ReceivedMessage]:
        """As in ``ReceiveLink``; from now on the link does not reopen."""
        self._may_reopen = False
        return await super().receive(max_messages=max_messages, max_wait_time=max_wait_time, timeout=timeout)

    async def renew(self, *, timeout: float) -> None:
        """Renew the lock of the session. :raises LockLostError: it has expired."""

        async def renew(receiver: ServiceBusReceiver) -> None:
            await receiver.session.renew_lock(timeout=timeout)
            self._remember_lock(receiver)

        self._client.meter.count(Operation.RENEW)
        await self._call("renew the session lock on", renew, timeout=timeout)

    async def _accept(self, receiver: ServiceBusReceiver) -> str:
        await receiver.__aenter__()
        self._remember_lock(receiver)
        return str(receiver.session.session_id)

    def _remember_lock(self, receiver: ServiceBusReceiver) -> None:
        until = receiver.session.locked_until_utc
        self.locked_until = None if until is None else until.timestamp()

    def _reopen(self, create_handler: Callable[[], Any]) -> Any:
        if self._may_reopen:
            return create_handler()
        raise LockLostError(f"the session of {self.path} on {self._client.namespace} is lost: its link has failed")
