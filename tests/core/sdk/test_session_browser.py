"""Browsing a queue that requires sessions: every session, one at a time (SPEC section 6)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import proton
import pytest
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import Emulator
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core.sdk.messages import to_amqp_message
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.sdk.session_browser import SessionBrowser
from tests.core.support.local_pair import endpoint
from tests.core.support.queues import send_raw


@pytest.fixture
async def client() -> AsyncIterator[NamespaceClient]:
    """A client of a queue with three messages in session a and one in session b."""
    async with Emulator(["contoso-dr"]) as emulator:
        emulator["contoso-dr"].namespace.create_queue(QueueDescription("q", requires_session=True))
        client = NamespaceClient(endpoint(emulator["contoso-dr"]))
        try:
            for name in ("a1", "b1", "a2", "a3"):
                message = ServiceBusMessage(name, message_id=name, session_id=name[0])
                await client.send_link("q").send_ping(to_amqp_message(message), timeout=5)
            yield client
        finally:
            await client.close()


def browser_of(client: NamespaceClient, **options: Any) -> SessionBrowser:
    return SessionBrowser(client, "q", page_size=2, timeout=5, **options)


async def read(browser: SessionBrowser, **options: Any) -> list[list[str]]:
    return [[str(each.message_id) for each in page] async for page in browser.readable_pages(**options)]


async def test_all_messages_are_read_by_session_and_stay(client: NamespaceClient) -> None:
    for _ in range(2):
        assert await read(browser_of(client, expected=["b", "empty"])) == [["b1"], ["a1", "a2"], ["a3"]]
    assert await read(browser_of(client), first_page=True) == [["a1", "a2"], ["b1"]]


@pytest.mark.simulated
async def test_a_session_that_another_receiver_holds_is_waited_for_and_else_named(client: NamespaceClient) -> None:
    held = client.session_link("q", wait=1, session_id="a")
    await held.accept(timeout=5)
    browser, clock = browser_of(client), asyncio.get_running_loop().time
    began = clock()
    assert (await read(browser), browser.locked) == ([["b1"]], ["a"])
    assert clock() - began < 0.5
    for wait in (0.5, 2.5):
        browser, began = browser_of(client, lock_wait=wait), clock()
        assert (await read(browser), browser.locked) == ([["b1"]], ["a"])
        assert clock() - began == pytest.approx(wait + 0.5, abs=0.3), "it is tried each second"
    waiting = browser_of(client, lock_wait=5)
    reading = asyncio.create_task(read(waiting))
    await asyncio.sleep(0.2)
    await held.close()
    assert (await reading, waiting.locked) == ([["a1", "a2"], ["a3"], ["b1"]], [])


async def test_a_message_that_cannot_be_decoded_hides_no_other() -> None:
    async with Emulator(["contoso-dr"], open=True) as emulator:
        served = emulator["contoso-dr"]
        served.namespace.create_queue(QueueDescription("q", requires_session=True))
        client = NamespaceClient(endpoint(served))
        try:
            for name in ("a1", "a2", "bad", "a3", "b1"):
                if name == "bad":
                    bad = proton.Message(id="bad", body="x", group_id="a", properties={"value": proton.char("z")})
                    await asyncio.to_thread(send_raw, served, "q", bad)
                else:
                    message = ServiceBusMessage(name, message_id=name, session_id=name[0])
                    await client.send_link("q").send_ping(to_amqp_message(message), timeout=5)
            browser = browser_of(client)
            assert [each for page in await read(browser) for each in page] == ["a1", "a2", "a3", "b1"]
            assert (browser.undecodable, browser.locked) == (1, [])
        finally:
            await client.close()
