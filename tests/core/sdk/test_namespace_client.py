"""A client shares its send links, bounds calls that ignore cancellation, and can be closed or faulted once."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.servicebus import TransportType

from servicebus_pair.core import Endpoint
from servicebus_pair.core.model.errors import PairClosedError
from servicebus_pair.core.sdk import namespace_client
from servicebus_pair.core.sdk._private.capabilities import fast_path
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.sdk.relay.receive import RelayReceiveLink

pytestmark = pytest.mark.simulated

KEY = "SharedAccessKeyName=n;SharedAccessKey=k"


def endpoint(*, emulator: bool = True, **more: Any) -> Endpoint:
    text = f"Endpoint=sb://127.0.0.1:5672;{KEY};UseDevelopmentEmulator={emulator}"
    return Endpoint.from_connection_string(text, namespace="contoso", **more)


@pytest.fixture
async def client() -> AsyncIterator[NamespaceClient]:
    made = NamespaceClient(endpoint())
    yield made
    await made.close()


async def test_senders_of_a_path_share_one_link_per_index(client: NamespaceClient) -> None:
    link = client.send_link("Flights")
    assert client.send_link("flights") is client.send_link("FLIGHTS", link_index=0) is link
    assert client.send_link("flights", link_index=1) is not link
    assert client.receive_link("flights") is not client.receive_link("flights")


@pytest.mark.usefixtures("sdk_path")
@pytest.mark.parametrize(("dead_letter", "suffix"), [(False, "flights"), (True, "flights/$DeadLetterQueue")])
async def test_a_receive_link_opens_its_queue(client: NamespaceClient, dead_letter: bool, suffix: str) -> None:
    receiver = client.receive_link("flights", dead_letter=dead_letter)._create_handler()
    assert receiver._entity_uri.endswith(suffix)
    assert receiver._prefetch_count == 0
    accepting = client.session_link("flights", wait=1, session_id="s")._create_handler()
    assert accepting.session.session_id == "s"
    # On the public path a buffer keeps the order of a session.
    assert accepting._prefetch_count == (0 if fast_path() else 100)


@pytest.mark.fast_sdk
@pytest.mark.parametrize(("relay_bytes", "frame_bytes"), [(0, 2**20), (5_000_000, 2**16)])
async def test_a_link_that_relays_takes_small_frames_and_about_so_many_bytes(
    client: NamespaceClient, relay_bytes: int, frame_bytes: int
) -> None:
    for link in (
        client.receive_link("flights", relay_bytes=relay_bytes),
        client.session_link("flights", wait=1, relay_bytes=relay_bytes),
    ):
        receiver = link._create_handler()
        receiver._create_handler(None)
        assert receiver._handler._max_frame_size == frame_bytes
        assert isinstance(link, RelayReceiveLink) is (relay_bytes > 0)
        assert getattr(link, "max_bytes", 0) == relay_bytes
        assert link in client._receive_links


async def test_a_call_that_ignores_its_cancellation_is_left_behind(client: NamespaceClient) -> None:
    ended = asyncio.Event()

    async def ignore_cancellation() -> None:
        while not ended.is_set():
            try:
                await ended.wait()
            except asyncio.CancelledError:
                continue

    started = asyncio.get_running_loop().time()
    with pytest.raises(TimeoutError, match=r"no answer in 2\.0 s"):
        await client.run_bounded(ignore_cancellation(), 2)
    assert asyncio.get_running_loop().time() - started == pytest.approx(2, abs=0.1)
    assert len(client._background) == 1
    ended.set()
    await asyncio.sleep(0.1)
    assert (await client.run_bounded(asyncio.sleep(0, 5), 2), client._background) == (5, set())


async def test_the_end_of_a_call_that_was_left_behind_is_not_reported_as_an_error(client: NamespaceClient) -> None:
    reported: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))

    async def fail_late() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            raise OSError("the connection is lost") from None

    for call in (fail_late(), asyncio.sleep(60)):
        with pytest.raises(TimeoutError):
            await client.run_bounded(call, 1)
    await asyncio.sleep(0.1)
    gc.collect()
    assert (client._background, reported) == (set(), [])


async def test_a_cancelled_call_ends_in_the_background(client: NamespaceClient) -> None:
    call = asyncio.create_task(client.run_bounded(asyncio.sleep(60), 30))
    await asyncio.sleep(0.1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await asyncio.sleep(0.1)
    assert client._background == set()


@pytest.mark.parametrize("faulted", [False, True])
async def test_a_client_ends_once_and_says_why(client: NamespaceClient, faulted: bool) -> None:
    reasons: list[str] = []
    client.on_closed = reasons.append
    client.check_open()
    closed = [client.is_closed]
    assert not client.authenticated, "it has not called anybody"
    if faulted:
        client.fault(PairClosedError("the partner ended"))
        client.fault(PairClosedError("again"))
    await client.close()
    await client.close()
    assert [*closed, client.is_closed] == [False, True]
    assert reasons == (["was faulted (the partner ended)"] if faulted else ["was closed"])
    with pytest.raises(PairClosedError, match="the partner ended" if faulted else "of namespace contoso is closed"):
        client.check_open()


@pytest.mark.parametrize(
    ("given", "kind", "tls"),
    [
        (endpoint(), TransportType.Amqp, False),
        (endpoint(transport="websocket"), TransportType.AmqpOverWebsocket, False),
        (endpoint(emulator=False), TransportType.Amqp, True),
        (Endpoint.from_credential("contoso.servicebus.windows.net", object()), TransportType.Amqp, True),
        (Endpoint.from_credential("127.0.0.1", object(), namespace="n", emulator=True), TransportType.Amqp, False),
    ],
)
async def test_the_sdk_client_has_the_transport_of_its_endpoint_and_never_retries(
    given: Endpoint, kind: TransportType, tls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Any] = []
    monkeypatch.setattr(namespace_client, "shared_ssl_context", lambda ca_file, *, tls: read.append((ca_file, tls)))
    client = NamespaceClient(given)
    config = client._client._config
    assert (config.transport_type, config.use_tls, config.retry_total) == (kind, tls, 0)
    assert config.custom_endpoint_address is None
    assert read == [(None, tls)], "certificates are read for TLS only"
    await client.close()


async def test_a_custom_endpoint_and_certificates_are_passed_on() -> None:
    client = NamespaceClient(endpoint(emulator=False, endpoint_address="sb://gateway:443", ca_file="/no/such/file"))
    assert "gateway" in str(client._client._config.custom_endpoint_address)
    assert client._client._config.connection_verify == "/no/such/file"
    await client.close()
