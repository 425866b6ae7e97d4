"""SPEC section 4 and EMULATOR section 2, cell by cell: what each fault makes of a call of the unmodified SDK, for real.

The sender's decisions on these errors are proved by ``test_pair_faults`` and ``test_pair_bounds``.
"""

from __future__ import annotations

import asyncio
import socket
from datetime import UTC, datetime
from typing import Any

import pytest
from azure.servicebus import exceptions as sdk

from servicebus_emulator import Fault, FaultKind, Operation
from servicebus_pair.core import Endpoint, errors
from servicebus_pair.core.clients import NamespaceClient
from servicebus_pair.core.send_link import SendLink, Turn
from servicebus_pair.core.wire import WireBatch
from tests.core.breakable import Breakable, numbered

pytestmark = pytest.mark.simulated

# What a call gets where nothing answers it, and where something does.
SILENCE, ANSWER = 0.5, 5.0
# The outer wait, and what a machine under load needs.
LAG = 2.0
LATER = datetime(2030, 1, 1, tzinfo=UTC)
KEY = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=wrong"

CONNECT, AUTHENTICATE, OPEN = Operation.CONNECT, Operation.AUTHENTICATE, Operation.OPEN_SENDER
SEND, MANAGE, ANYTHING = Operation.SEND, Operation.MANAGE, Operation.ANYTHING
K = FaultKind
LOST = (errors.UnreachableError, sdk.ServiceBusConnectionError)
SILENT = (errors.TimedOutError, sdk.OperationTimeoutError)
# The SDK itself would wait for ever: our own outer wait ends the call.
HANGS = (errors.TimedOutError, TimeoutError)
BUSY = (errors.ServerBusyError, sdk.ServiceBusServerBusyError)
FAULTY = (errors.ServiceFaultError, sdk.ServiceBusError)
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
    *((K.INTERNAL_ERROR, on, FAULTY, {}) for on in (OPEN, SEND, MANAGE)),
    *((K.QUOTA_EXCEEDED, on, FULL, {}) for on in (OPEN, SEND, MANAGE)),
    *((K.SIZE_EXCEEDED, on, LARGE, {}) for on in (OPEN, SEND, MANAGE)),
    *((K.ENTITY_DISABLED, on, DISABLED, {}) for on in (OPEN, SEND, MANAGE)),
    *((K.NOT_FOUND, on, MISSING, {}) for on in (OPEN, SEND, MANAGE)),
    *((K.UNAUTHORIZED, on, NO_RIGHT, {}) for on in (OPEN, SEND, MANAGE)),
]


def batch() -> WireBatch:
    made = WireBatch(262_144)
    [message] = numbered(1)
    assert made.try_add(message.raw_amqp_message)
    return made


async def call(link: SendLink, operation: Operation, *, timeout: float) -> None:
    if operation is MANAGE:
        await link.schedule_in_turn(batch(), Turn(seconds=lambda: timeout), at=LATER)
    else:
        await link.send(batch(), timeout=timeout)


@pytest.mark.parametrize(
    ("kind", "operation", "seen", "more"), CELLS, ids=[f"{kind.value} at {on.value}" for kind, on, _, _ in CELLS]
)
async def test_section_4_each_fault_has_its_error_in_bounded_time_and_the_link_works_afterwards(
    breakable: Breakable,
    kind: FaultKind,
    operation: Operation,
    seen: tuple[type[Exception], type[Exception]],
    more: dict[str, Any],
) -> None:
    link = breakable.pair._open().primary.send_link("flights")
    if operation in (SEND, MANAGE, ANYTHING):
        await link.open(timeout=5)
    everywhere = kind in (K.LATENCY, K.BANDWIDTH)
    breakable.primary.set_fault(Fault(kind=kind, on=() if everywhere else (operation,), **more))
    ours, theirs = seen
    seconds = SILENCE if ours is errors.TimedOutError else ANSWER
    began = asyncio.get_running_loop().time()
    with pytest.raises(errors.ServiceError) as caught:
        await call(link, operation, timeout=seconds)
    assert asyncio.get_running_loop().time() - began < SILENCE + LAG
    assert (type(caught.value), type(caught.value.__cause__)) == (ours, theirs)
    breakable.primary.clear_faults()
    await link.send(batch(), timeout=5)


@pytest.mark.parametrize("status", [401, 403, 404, 500, 503])
@pytest.mark.parametrize("worked_before", [False, True])
async def test_section_4_every_refusal_of_a_token_looks_alike_and_counts_only_where_one_had_worked(
    breakable: Breakable, status: int, worked_before: bool
) -> None:
    client = breakable.pair._open().primary
    link = client.send_link("flights")
    if worked_before:
        await link.open(timeout=5)
        link._discard()
    breakable.primary.set_fault(Fault(kind=K.AUTH_FAILURE, status=status))
    with pytest.raises(errors.ServiceError) as caught:
        await link.send(batch(), timeout=5)
    assert type(caught.value) is (errors.AuthenticationSuspectError if worked_before else errors.AuthenticationError)
    assert type(caught.value.__cause__) is sdk.ServiceBusAuthenticationError


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


async def test_section_4_a_name_that_no_server_knows_is_no_connection() -> None:
    error = await failure_of(f"Endpoint=sb://contoso.servicebus.invalid;{KEY}", timeout=SILENCE)
    assert type(error) in (errors.UnreachableError, errors.TimedOutError)


async def test_section_4_a_port_that_nobody_listens_on_is_no_connection() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        error = await failure_of(f"Endpoint=sb://127.0.0.1:{port};{KEY};UseDevelopmentEmulator=true")
    assert type(error) is errors.UnreachableError


async def test_section_4_a_certificate_that_is_not_trusted_is_no_connection(breakable: Breakable) -> None:
    hosted = breakable.primary
    error = await failure_of(hosted.tls_connection_string, endpoint_address=hosted.endpoint_address)
    assert type(error) is errors.UnreachableError
    assert "CERTIFICATE_VERIFY_FAILED" in str(error)


async def test_section_4_a_key_that_never_was_right_is_an_error_of_the_caller(breakable: Breakable) -> None:
    port = breakable.primary.amqp_port
    error = await failure_of(f"Endpoint=sb://127.0.0.1:{port};{KEY};UseDevelopmentEmulator=true")
    assert type(error) is errors.AuthenticationError


async def test_section_4_a_port_that_speaks_another_language_is_a_fault_of_the_service() -> None:
    async def answer_in_http(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(8)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer_in_http, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        error = await failure_of(f"Endpoint=sb://127.0.0.1:{port};{KEY};UseDevelopmentEmulator=true")
    assert type(error) is errors.ServiceFaultError


async def test_section_4_a_peer_that_drips_its_answer_byte_by_byte_is_bounded_like_silence() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        del reader  # it is never listened to
        for byte in b"AMQP\x03\x01\x00\x00" * 4:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.4)
        writer.close()

    async with await asyncio.start_server(drip, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        text = f"Endpoint=sb://127.0.0.1:{port};{KEY};UseDevelopmentEmulator=true"
        error = await failure_of(text, timeout=SILENCE)
    assert type(error) is errors.TimedOutError
