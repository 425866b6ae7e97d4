"""Each fault of a service raises one error of a link, and the link works again afterwards (SPEC section 4)."""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import exceptions as sdk

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import Endpoint
from servicebus_pair.core.model import errors
from servicebus_pair.core.sdk.message_batch import EncodedBatch
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.sdk.send_link import SendLink, SendSlot
from tests.core.support.local_pair import LocalPair, numbered

pytestmark = pytest.mark.simulated

# Timeout of a call that the service does not answer, and of one that it does.
SILENCE, ANSWER = 0.5, 5.0
# The outer wait, and an allowance for a loaded machine.
LAG = 2.0
LATER = datetime(2030, 1, 1, tzinfo=UTC)
KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=wrong"

CONNECT, AUTHENTICATE, OPEN = Operation.CONNECT, Operation.AUTHENTICATE, Operation.OPEN_SENDER
SEND, MANAGE, ANYTHING = Operation.SEND, Operation.MANAGE, Operation.ANYTHING
K = FaultKind
LOST = (errors.UnreachableError, sdk.ServiceBusConnectionError)
SILENT = (errors.TimedOutError, sdk.OperationTimeoutError)
# The SDK would wait for ever; the outer timeout ends the call.
HANGS = (errors.TimedOutError, TimeoutError)
BUSY = (errors.ServerBusyError, sdk.ServiceBusServerBusyError)
FAULTY = (errors.ServiceFaultError, sdk.ServiceBusError)
REJECTED = (errors.RejectedError, sdk.ServiceBusError)
FULL = (errors.QuotaExceededError, sdk.ServiceBusQuotaExceededError)
LARGE = (errors.MessageTooLargeError, sdk.MessageSizeExceededError)
DISABLED = (errors.EntityDisabledError, sdk.MessagingEntityDisabledError)
MISSING = (errors.EntityNotFoundError, sdk.MessagingEntityNotFoundError)
NO_RIGHT = (errors.AuthorizationError, sdk.ServiceBusAuthorizationError)

CELLS: list[tuple[FaultKind, Operation, tuple[type[Exception], type[Exception]], dict[str, Any]]] = [
    (K.REFUSE, CONNECT, LOST, {}),
    *((K.RESET, on, LOST, {}) for on in (CONNECT, AUTHENTICATE, OPEN, SEND, MANAGE)),
    *((K.FREEZE, on, HANGS, {}) for on in (CONNECT, AUTHENTICATE, OPEN)),
    *((K.FREEZE, on, SILENT, {}) for on in (SEND, MANAGE, ANYTHING)),
    (K.DROP, CONNECT, HANGS, {}),
    *((K.DROP, on, SILENT, {}) for on in (SEND, ANYTHING)),
    (K.LATENCY, ANYTHING, SILENT, {"delay": 5}),
    (K.BANDWIDTH, ANYTHING, SILENT, {"bytes_per_second": 20}),
    (K.NO_DISPOSITION, AUTHENTICATE, HANGS, {}),
    *((K.NO_DISPOSITION, on, SILENT, {}) for on in (SEND, MANAGE)),
    (K.LATE_DISPOSITION, AUTHENTICATE, HANGS, {"delay": 5}),
    *((K.LATE_DISPOSITION, on, SILENT, {"delay": 5}) for on in (SEND, MANAGE)),
    (K.RELEASED, SEND, HANGS, {}),
    (K.MODIFIED, SEND, HANGS, {}),
    (K.CLOSE_LINK, SEND, LOST, {}),
    *((K.CLOSE_CONNECTION, on, LOST, {}) for on in (AUTHENTICATE, OPEN, SEND)),
    (K.CLOSE_CONNECTION, MANAGE, FAULTY, {}),
    *((K.SERVER_BUSY, on, BUSY, {}) for on in (OPEN, SEND, MANAGE)),
    (K.INTERNAL_ERROR, OPEN, FAULTY, {}),
    *((K.INTERNAL_ERROR, on, REJECTED, {}) for on in (SEND, MANAGE)),
    *((K.QUOTA_EXCEEDED, on, FULL, {}) for on in (OPEN, SEND, MANAGE)),
    *((K.SIZE_EXCEEDED, on, LARGE, {}) for on in (OPEN, SEND, MANAGE)),
    *((K.ENTITY_DISABLED, on, DISABLED, {}) for on in (OPEN, SEND, MANAGE)),
    *((K.NOT_FOUND, on, MISSING, {}) for on in (OPEN, SEND, MANAGE)),
    *((K.UNAUTHORIZED, on, NO_RIGHT, {}) for on in (OPEN, SEND, MANAGE)),
]


def batch() -> EncodedBatch:
    made = EncodedBatch(262_144)
    [message] = numbered(1)
    assert made.try_add(to_amqp_message(message))
    return made


async def call(link: SendLink, operation: Operation, *, timeout: float) -> None:
    if operation is MANAGE:
        await link.schedule_in_slot(batch(), SendSlot(attempt_timeout=lambda: timeout), at=LATER)
    else:
        await link.send(batch(), timeout=timeout)


@pytest.mark.parametrize(
    ("kind", "operation", "seen", "more"), CELLS, ids=[f"{kind.value} at {on.value}" for kind, on, _, _ in CELLS]
)
async def test_section_4_each_fault_raises_its_error_in_bounded_time_and_the_link_recovers(
    local_pair: LocalPair,
    kind: FaultKind,
    operation: Operation,
    seen: tuple[type[Exception], type[Exception]],
    more: dict[str, Any],
) -> None:
    link = local_pair.pair._open().primary.send_link("flights")
    if operation in (SEND, MANAGE, ANYTHING):
        await link.open(timeout=5)
    everywhere = kind in (K.LATENCY, K.BANDWIDTH)
    local_pair.primary.set_fault(Fault(kind=kind, on=() if everywhere else (operation,), **more))
    ours, theirs = seen
    seconds = SILENCE if ours is errors.TimedOutError else ANSWER
    began = asyncio.get_running_loop().time()
    with pytest.raises(errors.ServiceError) as caught:
        await call(link, operation, timeout=seconds)
    assert asyncio.get_running_loop().time() - began < SILENCE + LAG
    assert (type(caught.value), type(caught.value.__cause__)) == (ours, theirs)
    local_pair.primary.clear_faults()
    await link.send(batch(), timeout=5)


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
@pytest.mark.parametrize("worked_before", [False, True])
async def test_section_4_a_refused_token_triggers_failover_only_after_an_accepted_one(
    local_pair: LocalPair, status: int, worked_before: bool
) -> None:
    client = local_pair.pair._open().primary
    link = client.send_link("flights")
    if worked_before:
        await link.open(timeout=5)
        link._discard()
    local_pair.primary.set_fault(Fault(kind=K.AUTH_FAILURE, status=status))
    with pytest.raises(errors.ServiceError) as caught:
        await link.send(batch(), timeout=5)
    assert type(caught.value) is (errors.AuthenticationSuspectError if worked_before else errors.AuthenticationError)
    assert type(caught.value.__cause__) is sdk.ServiceBusAuthenticationError


@pytest.mark.parametrize("numbers", [None, 5, "5", {5: 5}, [], [5, 6], [None], ["5"], [True]])
async def test_scheduling_ends_with_an_error_if_a_message_has_no_sequence_number(
    local_pair: LocalPair, monkeypatch: pytest.MonkeyPatch, numbers: Any
) -> None:
    """Others would be cancelled by numbers that are not theirs."""

    async def schedule_messages(*_: Any, **__: Any) -> Any:
        return numbers

    monkeypatch.setattr("azure.servicebus.aio.ServiceBusSender.schedule_messages", schedule_messages)
    with pytest.raises(errors.ServiceFaultError, match=r"gave 1 messages \d sequence numbers"):
        await call(local_pair.pair._open().primary.send_link("flights"), MANAGE, timeout=ANSWER)


async def failure_of(text: str, *, timeout: float = ANSWER, **settings: Any) -> errors.ServiceError:
    client = NamespaceClient(Endpoint.from_connection_string(text, namespace="contoso", **settings))
    began = asyncio.get_running_loop().time()
    try:
        with pytest.raises(errors.ServiceError) as caught:
            await client.send_link("flights").send(batch(), timeout=timeout)
        assert asyncio.get_running_loop().time() - began < SILENCE + LAG
    finally:
        await client.close()
    return caught.value


async def test_section_4_an_unknown_host_name_is_unreachable() -> None:
    error = await failure_of(f"Endpoint=sb://contoso.servicebus.invalid;{KEY}", timeout=SILENCE)
    assert type(error) in (errors.UnreachableError, errors.TimedOutError)


async def test_section_4_a_closed_port_is_unreachable() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        error = await failure_of(f"Endpoint=sb://127.0.0.1:{port};{KEY};UseDevelopmentEmulator=true")
    assert type(error) is errors.UnreachableError


async def test_section_4_an_untrusted_certificate_is_unreachable(local_pair: LocalPair) -> None:
    hosted = local_pair.primary
    error = await failure_of(hosted.tls_connection_string, endpoint_address=hosted.endpoint_address)
    assert type(error) is errors.UnreachableError
    assert "CERTIFICATE_VERIFY_FAILED" in str(error)


async def test_section_4_a_key_that_never_worked_is_an_authentication_error(local_pair: LocalPair) -> None:
    port = local_pair.primary.amqp_port
    error = await failure_of(f"Endpoint=sb://127.0.0.1:{port};{KEY};UseDevelopmentEmulator=true")
    assert type(error) is errors.AuthenticationError


async def test_section_4_a_port_with_another_protocol_is_a_service_fault() -> None:
    async def answer_in_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer_in_http, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await failure_of(f"Endpoint=sb://127.0.0.1:{port};{KEY};UseDevelopmentEmulator=true")
    assert type(error) is errors.ServiceFaultError


async def test_section_4_a_peer_that_responds_byte_by_byte_times_out() -> None:
    async def send_byte_by_byte(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader
        for byte in b"AMQP\x03\x01\x00\x00" * 4:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.4)
        writer.close()

    async with await asyncio.start_server(send_byte_by_byte, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        text = f"Endpoint=sb://127.0.0.1:{port};{KEY};UseDevelopmentEmulator=true"
        error = await failure_of(text, timeout=SILENCE)
    assert type(error) is errors.TimedOutError
