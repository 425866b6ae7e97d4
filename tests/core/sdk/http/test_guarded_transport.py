"""Answers of a hostile administration: they take no more memory than a listing needs, and get no token elsewhere."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError
from azure.core.pipeline.transport import AioHttpTransport

from servicebus_pair.core import ArmCoordinates, ClientSecret, Endpoint, Secret
from servicebus_pair.core.errors import ServiceFaultError
from servicebus_pair.core.sdk.administration import administration_for
from servicebus_pair.core.sdk.http import guarded_transport
from servicebus_pair.core.sdk.http.guarded_transport import GuardedTransport

MEGABYTE = 1 << 20
FEED = b"HTTP/1.1 200 OK\r\nContent-Type: application/atom+xml\r\n"
LISTING = (
    b'<feed xmlns="http://www.w3.org/2005/Atom"><entry><title>contoso/0</title><content type="application/xml">'
    b'<QueueDescription xmlns="http://schemas.microsoft.com/netservices/2010/10/servicebus/connect">'
    b"<CountDetails/></QueueDescription></content></entry></feed>"
)
KEY = "SharedAccessKeyName=a;SharedAccessKey=c4nary+c4nary/c4nary0c4nary1c4nary2c4nary34="


@asynccontextmanager
async def serving(answer: Callable[[], AsyncIterator[bytes]]) -> AsyncIterator[tuple[str, list[bytes]]]:
    """Yield the address of a server with this answer, and what it was asked and has sent."""
    seen: list[bytes] = []

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            seen.append(await reader.readuntil(b"\r\n\r\n"))
            async for block in answer():
                writer.write(block)
                await writer.drain()
                seen.append(block)
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0)
    async with server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", seen


def at(administration: str) -> Endpoint:
    text = f"Endpoint=sb://{administration};{KEY};UseDevelopmentEmulator=true"
    return Endpoint.from_connection_string(text, namespace="contoso", administration=administration)


async def test_no_token_and_no_request_goes_where_an_answer_points():
    async def nothing() -> AsyncIterator[bytes]:
        yield b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"

    async with serving(nothing) as (thief, stolen):

        async def elsewhere() -> AsyncIterator[bytes]:
            yield f"HTTP/1.1 307 Go\r\nLocation: http://{thief}/x\r\nContent-Length: 0\r\n\r\n".encode()

        async with serving(elsewhere) as (address, _), administration_for(at(address)) as administration:
            with pytest.raises(ServiceFaultError, match="points to another host"):
                await administration.queue_depths("contoso/")

    assert stolen == []


async def test_an_answer_without_an_end_is_not_read_beyond_a_limit():
    async def endless() -> AsyncIterator[bytes]:
        yield FEED + b"\r\n<feed>"
        for _ in range(500):
            yield b" " * MEGABYTE

    async with serving(endless) as (address, sent), administration_for(at(address)) as administration:
        with pytest.raises(ServiceFaultError, match="larger than 8388608 bytes"):
            await administration.queue_depths("contoso/")

    # What the buffers of two sockets take is sent as well.
    assert sum(map(len, sent)) < 40 * MEGABYTE


@pytest.mark.parametrize(
    ("encoding", "body", "error"),
    [
        ("gzip", gzip.compress(LISTING), None),
        ("Deflate", zlib.compress(LISTING), None),
        ("gzip", gzip.compress(b" " * 64 * MEGABYTE), "larger than 8388608 bytes"),
        # A first member of a gzip file, and blocks that are unpacked to nothing.
        ("gzip", gzip.compress(LISTING, 0)[:10] + b"\0\0\0\xff\xff" * 2 * MEGABYTE, "larger than 8388608 bytes"),
        ("gzip", gzip.compress(LISTING.replace(b"<feed", b"<entry/>" * 1000 + b"<feed")), "more than 1000 entries"),
        # What the parser of the SDK takes seconds for, in which nothing else happens.
        ("gzip", gzip.compress(b"<a>" * 200_000), "more than 100000 tags, attributes and commas"),
        (
            "gzip",
            gzip.compress(b'<a b=""' + b' b=""' * 200_000 + b"/>"),
            "more than 100000 tags, attributes and commas",
        ),
        ("gzip", gzip.compress(b'{"value": [{}' + b", {}" * 200_000 + b"]}"), "more than 100000 tags, attributes and"),
        ("gzip", gzip.compress(LISTING)[:-9], "ends too early"),
        ("gzip", LISTING, "incorrect header check"),
        ("br", LISTING, "encoded as 'br', which was not asked for"),
    ],
    ids=["gzip", "deflate", "bomb", "nothing", "many", "tags", "attributes", "elements", "short", "plain", "unknown"],
)
async def test_an_answer_that_is_compressed_unasked_is_unpacked_up_to_the_same_limit(
    encoding: str, body: bytes, error: str | None
):
    async def compressed() -> AsyncIterator[bytes]:
        yield FEED + f"Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    async with serving(compressed) as (address, seen), administration_for(at(address)) as administration:
        if error is None:
            assert [depth.path for depth in await administration.queue_depths("contoso/")] == ["contoso/0"]
        else:
            tracemalloc.start()
            with pytest.raises(ServiceFaultError, match=error):
                await administration.queue_depths("contoso/")
            assert tracemalloc.get_traced_memory()[1] < 40 * MEGABYTE
            tracemalloc.stop()

    assert b"accept-encoding: identity" in seen[0].lower()


@pytest.mark.parametrize("encoding", ["identity", "gzip", "deflate"])
@pytest.mark.parametrize("more", [0, 1])
async def test_an_answer_is_read_up_to_its_limit(encoding: str, more: int):
    packs: dict[str, Callable[[bytes], bytes]] = {"identity": bytes, "gzip": gzip.compress, "deflate": zlib.compress}
    body = packs[encoding](LISTING + b" " * (8 * MEGABYTE - len(LISTING) + more))

    async def answer() -> AsyncIterator[bytes]:
        yield FEED + f"Content-Encoding: {encoding}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body

    async with serving(answer) as (address, _), administration_for(at(address)) as administration:
        if more:
            with pytest.raises(ServiceFaultError, match="larger than 8388608 bytes"):
                await administration.queue_depths("contoso/")
        else:
            assert [depth.path for depth in await administration.queue_depths("contoso/")] == ["contoso/0"]


async def test_requests_go_to_the_host_of_the_first_one_only(monkeypatch: pytest.MonkeyPatch):
    sent: list[str] = []

    async def send(_: object, request: Any, **__: object) -> None:
        sent.append(request.url)

    monkeypatch.setattr(AioHttpTransport, "send", send)
    transport = GuardedTransport()
    for url in ("https://m.example/1", "https://M.example/2"):
        await transport.send(SimpleNamespace(url=url, headers={}))
    for other in ("https://a.example/1", "https://z.example/1", "http://m.example/1", "https://m.example:444/1"):
        with pytest.raises(HttpResponseError, match="another host"):
            await transport.send(SimpleNamespace(url=other, headers={}))
    assert sent == ["https://m.example/1", "https://M.example/2"]


async def test_a_listing_without_an_end_is_not_read_beyond_a_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(guarded_transport, "_MAX_CALL_BYTES", 20 * len(LISTING))
    pages = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal pages
        pages += 1
        links = (
            f'<link rel="self" href="{address}"/><link rel="next" href="http://{address}/?$skip={pages}&amp;$top=1"/>'
        )
        body = LISTING.replace(b"<entry>", links.encode() + b"<entry>")
        yield FEED + f"Content-Length: {len(body)}\r\n\r\n".encode() + body

    async with serving(endless) as (address, _), administration_for(at(address)) as administration:
        for _ in range(2):
            pages = 0
            with pytest.raises(ServiceFaultError, match="the answers to one call are larger"):
                await administration.queue_depths("contoso/")
            assert 10 < pages < 20


def through_resource_manager() -> Endpoint:
    application = ClientSecret(tenant_id="t", client_id="c", client_secret=Secret("s"))
    arm = ArmCoordinates(subscription_id="s", resource_group="g", credential=application)
    return Endpoint.from_credential("contoso.servicebus.windows.net", application, arm=arm)


@pytest.mark.parametrize("endpoint", [at("127.0.0.1:9"), through_resource_manager()], ids=["data plane", "manager"])
async def test_both_administrations_are_called_likewise_and_no_request_is_repeated(endpoint: Endpoint):
    async with administration_for(endpoint) as administration:
        client: Any = administration._client  # type: ignore[attr-defined]
        pipeline = getattr(client, "_impl", client)._client._pipeline
        assert isinstance(pipeline._transport, GuardedTransport)
        assert pipeline._transport.session.trust_env, "a proxy of the environment is used"
        assert [each.total_retries for each in pipeline._impl_policies if hasattr(each, "total_retries")] == [0]
