"""Errors that the caller has to fix raise at once and cause no failover (SPEC section 4)."""

from __future__ import annotations

import asyncio

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core.model.errors import (
    AuthenticationError,
    AuthorizationError,
    EntityDisabledError,
    EntityNotFoundError,
    MessageTooLargeError,
    QuotaExceededError,
    RefusedError,
    SendError,
    ServiceError,
)
from tests.core.support.local_pair import FAILOVER_MARGIN, LocalPair, numbered

pytestmark = pytest.mark.simulated

# Errors that the caller has to fix, on an open link and while opening it.
SENDING = (Operation.SEND,)

OPENING = (Operation.OPEN_SENDER,)

ERRORS = [
    pytest.param(Fault(kind=FaultKind.NOT_FOUND, on=OPENING), EntityNotFoundError, id="not found"),
    pytest.param(Fault(kind=FaultKind.UNAUTHORIZED, on=OPENING), AuthorizationError, id="no right to open"),
    pytest.param(Fault(kind=FaultKind.UNAUTHORIZED, on=SENDING), AuthorizationError, id="no right to send"),
    pytest.param(Fault(kind=FaultKind.QUOTA_EXCEEDED, on=SENDING), QuotaExceededError, id="full"),
    pytest.param(Fault(kind=FaultKind.QUOTA_EXCEEDED, on=OPENING), QuotaExceededError, id="too many links"),
    pytest.param(Fault(kind=FaultKind.ENTITY_DISABLED, on=SENDING), EntityDisabledError, id="disabled"),
    pytest.param(Fault(kind=FaultKind.ENTITY_DISABLED, on=OPENING), EntityDisabledError, id="disabled at the link"),
    pytest.param(Fault(kind=FaultKind.SIZE_EXCEEDED, on=SENDING), MessageTooLargeError, id="too large"),
    *(
        pytest.param(Fault(kind=FaultKind.AUTH_FAILURE, status=status), AuthenticationError, id=f"credential: {status}")
        for status in (401, 403, 404, 500, 503)
    ),
]


@pytest.mark.parametrize(("fault", "error"), ERRORS)
async def test_section_4_errors_of_the_caller_raise_at_once_and_cause_no_failover(
    local_pair: LocalPair, fault: Fault, error: type[ServiceError]
) -> None:
    local_pair.primary.set_fault(fault)
    async with local_pair.pair.sender("flights") as sender:
        started = asyncio.get_running_loop().time()
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(3))
        assert asyncio.get_running_loop().time() - started < FAILOVER_MARGIN
    assert isinstance(caught.value.cause, error)
    assert (len(caught.value.unsent), caught.value.in_doubt) == (3, ())
    assert local_pair.recorder.states == []


async def test_section_4_a_message_without_session_raises_and_causes_no_failover(local_pair: LocalPair) -> None:
    local_pair.primary.namespace.create_queue(QueueDescription("seated", requires_session=True))
    async with local_pair.pair.sender("seated") as sender:
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(2))
    assert isinstance(caught.value.cause, RefusedError)
    assert local_pair.recorder.states == []
