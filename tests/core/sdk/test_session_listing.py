"""Listing the sessions of a queue that requires sessions (SPEC section 6)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Emulator, Fault, FaultKind, HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core.model.errors import EntityNotFoundError, RefusedError, SessionLockedError, TimedOutError
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.sdk.session_listing import list_sessions
from tests.core.support.local_pair import endpoint

TIMEOUT = 5.0


@dataclass(frozen=True)
class Sessions:
    """A namespace with the session queue ``q``, and a client of it."""

    namespace: HostedNamespace
    client: NamespaceClient

    async def send(self, *session_ids: str) -> None:
        link = self.client.send_link("q")
        for session_id in session_ids:
            await link.send_ping(ServiceBusMessage("x", session_id=session_id), timeout=TIMEOUT)


@pytest.fixture
async def sessions() -> AsyncIterator[Sessions]:
    async with Emulator(["contoso-dr"]) as emulator:
        namespace = emulator["contoso-dr"]
        namespace.namespace.create_queue(QueueDescription("q", requires_session=True))
        namespace.namespace.create_queue(QueueDescription("plain"))
        client = NamespaceClient(endpoint(namespace))
        try:
            yield Sessions(namespace, client)
        finally:
            namespace.clear_faults()
            await client.close()


async def test_every_session_with_messages_is_listed_once_and_free_afterwards(sessions: Sessions) -> None:
    assert await list_sessions(sessions.client, "q", timeout=TIMEOUT) == []
    names = [f"s{number:02}" for number in range(11)]
    await sessions.send(*names, "s00")
    assert await list_sessions(sessions.client, "q", timeout=TIMEOUT) == names
    link = sessions.client.receive_link("q", session_id="s00")
    assert len(await link.peek(max_messages=5, timeout=TIMEOUT)) == 2
    assert len(await link.receive(max_messages=5, max_wait_time=2, timeout=TIMEOUT)) == 2


async def test_a_session_that_another_receiver_holds_is_left_out(sessions: Sessions) -> None:
    await sessions.send("a", "b")
    held = sessions.client.receive_link("q", session_id="a")
    assert await held.accept_session(timeout=TIMEOUT) == "a"
    assert await list_sessions(sessions.client, "q", timeout=TIMEOUT) == ["b"]
    with pytest.raises(SessionLockedError, match="is locked by another receiver"):
        await sessions.client.receive_link("q", session_id="a").accept_session(timeout=TIMEOUT)
    await held.close()
    assert await sessions.client.receive_link("q", session_id="a").accept_session(timeout=TIMEOUT) == "a"


@pytest.mark.parametrize(("path", "error"), [("missing", EntityNotFoundError), ("plain", RefusedError)])
async def test_a_queue_that_has_no_sessions_to_list_is_an_error(
    path: str, error: type[Exception], sessions: Sessions
) -> None:
    with pytest.raises(error):
        await list_sessions(sessions.client, path, timeout=TIMEOUT)


async def test_silence_is_not_taken_for_an_empty_queue(sessions: Sessions) -> None:
    await sessions.send("a")
    sessions.namespace.set_fault(Fault(kind=FaultKind.FREEZE))
    with pytest.raises(TimedOutError):
        await list_sessions(sessions.client, "q", timeout=1)
