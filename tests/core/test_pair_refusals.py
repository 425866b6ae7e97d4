"""What the caller must mend is raised at once and is no outage (SPEC section 4)."""

from __future__ import annotations

import asyncio

import pytest

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_emulator.engine.descriptions import QueueDescription
from servicebus_pair.core.errors import (
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
from tests.core.breakable import GRACE, Breakable, numbered

pytestmark = pytest.mark.simulated

# What is the caller's to mend: raised at once, with the messages, whether a link was open or not.
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
async def test_section_4_what_the_caller_must_mend_is_raised_at_once_with_its_messages_and_fails_nothing_over(
    breakable: Breakable, fault: Fault, error: type[ServiceError]
) -> None:
    breakable.primary.set_fault(fault)
    async with breakable.pair.sender("flights") as sender:
        began = asyncio.get_running_loop().time()
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(3))
        assert asyncio.get_running_loop().time() - began < GRACE
    assert isinstance(caught.value.cause, error)
    assert (len(caught.value.unsent), caught.value.in_doubt) == (3, ())
    assert breakable.recorder.states == []


async def test_section_4_a_message_without_a_session_id_is_no_outage_of_a_session_queue(breakable: Breakable) -> None:
    breakable.primary.namespace.create_queue(QueueDescription("seated", requires_session=True))
    async with breakable.pair.sender("seated") as sender:
        with pytest.raises(SendError) as caught:
            await sender.send(numbered(2))
    assert isinstance(caught.value.cause, RefusedError)
    assert breakable.recorder.states == []
