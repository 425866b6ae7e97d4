"""Attacks by a token service and by the Resource Manager: answers take little, and get no secret elsewhere."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from azure.core.exceptions import AzureError, ClientAuthenticationError, DecodeError
from azure.core.pipeline.policies import AsyncRetryPolicy

from servicebus_emulator.certificates import IssuedCertificate
from servicebus_pair.core import ArmCoordinates, ClientSecret, Endpoint, Secret
from servicebus_pair.core.sdk.administration import administration_for

MEGABYTE = 1 << 20
SCOPE = "https://servicebus.azure.net/.default"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IssuedCertificate]:
    issued = IssuedCertificate(tmp_path_factory.mktemp("tls"))
    yield issued
    issued.close()


@asynccontextmanager
async def answering(answer: bytes, *, tls: ssl.SSLContext | None) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Yield the address of a server that gives every client this answer, and what it was asked."""
    asked: list[bytes] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(answer)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, ssl=tls)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


def identity_at(authority: str, ca_file: Path) -> ClientSecret:
    secret = Secret("c4n8Q~ary-c4nary-c4nary-c4nary-c4nary")
    return ClientSecret(tenant_id="t", client_id="c", client_secret=secret, authority=authority, ca_file=str(ca_file))


async def token_of(authority: str, ca_file: Path) -> str:
    return (await identity_at(authority, ca_file).get_token(SCOPE)).token


def http(body: bytes, *, status: str = "200 OK", field: str = "Content-Type: application/json") -> bytes:
    return f"HTTP/1.1 {status}\r\n{field}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def issued(token: str = '"t"', times: str = '"expires_in": 3600') -> bytes:  # noqa: S107 - no secret
    return http(f'{{"access_token": {token}, "token_type": "Bearer", {times}}}'.encode())


async def test_an_honest_answer_is_taken(certificate: IssuedCertificate):
    async with answering(issued(), tls=certificate.context()) as (authority, _):
        assert await token_of(authority, certificate.ca_file) == "t"


@pytest.mark.parametrize(
    "answer",
    [
        http(b" " * 10 * MEGABYTE),
        http(gzip.compress(b" " * 64 * MEGABYTE), field="Content-Encoding: gzip"),
        http(b"[" + b"0," * MEGABYTE + b"0]"),
    ],
    ids=["long", "bomb", "many"],
)
async def test_what_is_too_large_is_not_read(
    certificate: IssuedCertificate, answer: bytes, monkeypatch: pytest.MonkeyPatch
):
    async def at_once(*_: object, **__: object) -> None:
        """Ask again, as the SDK does, without waiting."""

    monkeypatch.setattr(AsyncRetryPolicy, "sleep", at_once)
    async with answering(answer, tls=certificate.context()) as (authority, _):
        tracemalloc.start()
        with pytest.raises(DecodeError, match=r"larger than|more than"):
            await token_of(authority, certificate.ca_file)
        # The server's part is in it.
        assert tracemalloc.get_traced_memory()[1] < 40 * MEGABYTE
        tracemalloc.stop()


@pytest.mark.parametrize("token", ["5", "null", '["t"]', '{"t": 1}', '"t\\r\\nX: y"', '"t\\u202e"'])
async def test_what_is_no_token_is_not_taken_for_one(certificate: IssuedCertificate, token: str):
    async with answering(issued(token), tls=certificate.context()) as (authority, _):
        with pytest.raises(DecodeError, match="not one of its"):
            await token_of(authority, certificate.ca_file)


@pytest.mark.parametrize(
    "times",
    [
        *(f'"expires_in": {each}' for each in ("NaN", "Infinity", "1e300", 10**12, -(10**12), "[]", f'"{"9" * 5000}"')),
        *(f'"expires_in": 3600, "refresh_in": {each}' for each in ('"soon"', 10**400, -(10**12))),
    ],
)
async def test_what_is_no_time_is_no_error_in_a_message(certificate: IssuedCertificate, times: str):
    # A ValueError would stand for a message that cannot be sent, on which nothing fails over.
    async with answering(issued(times=times), tls=certificate.context()) as (authority, _):
        with pytest.raises(DecodeError, match="not one of its"):
            await token_of(authority, certificate.ca_file)


@pytest.mark.parametrize(
    "answer",
    [http(b"5"), http(b"[" * 100_000), http(b"x", status="429 Busy", field="Retry-After: Fri, 99 Foo 99999 0:0:0 GMT")],
    ids=["number", "deep", "date"],
)
async def test_what_is_no_answer_is_a_fault_of_the_service(certificate: IssuedCertificate, answer: bytes):
    async with answering(answer, tls=certificate.context()) as (authority, _):
        with pytest.raises(AzureError):
            await token_of(authority, certificate.ca_file)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_the_secret_does_not_go_where_an_answer_points(certificate: IssuedCertificate, status: int):
    async with answering(issued(), tls=certificate.context()) as (thief, stolen):
        elsewhere = http(b"", status=f"{status} Go", field=f"Location: {thief}/t/oauth2/v2.0/token")
        async with answering(elsewhere, tls=certificate.context()) as (authority, asked):
            with pytest.raises(ClientAuthenticationError):
                await token_of(authority, certificate.ca_file)
    assert (len(asked), stolen) == (1, [])


async def test_all_pages_of_a_listing_come_over_one_connection(certificate: IssuedCertificate):
    # One for each page would take half a MiB each, for as many as the service likes to send.
    connections, pages = 0, 3

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections, pages
        connections += 1
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while pages := pages - 1:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(http(f'{{"value": [], "nextLink": "{address}/{pages}"}}'.encode()))
            await reader.readuntil(b"\r\n\r\n")
            writer.write(http(b'{"value": []}'))
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, ssl=certificate.context())
    async with server, answering(issued(), tls=certificate.context()) as (authority, _):
        address = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        identity = identity_at(authority, certificate.ca_file)
        arm = ArmCoordinates(subscription_id="s", resource_group="g", credential=identity, management_endpoint=address)
        endpoint = Endpoint.from_credential(
            "contoso.servicebus.windows.net", identity, arm=arm, ca_file=str(certificate.ca_file)
        )
        async with administration_for(endpoint) as administration:
            assert await administration.list_queues() == {}
    assert connections == 1
