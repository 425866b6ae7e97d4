"""EMULATOR 3: faults are set over HTTP and from Python."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import ClientSession, ClientTimeout, ServerDisconnectedError
from azure.servicebus import ServiceBusClient as SyncClient
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusConnectionError, ServiceBusServerBusyError

from servicebus_emulator import Emulator, EmulatorProcess, Fault, FaultKind, HostedNamespace, Operation
from servicebus_emulator.faults import FaultError
from tests.emulator.support.authorizers import signed_headers

pytestmark = pytest.mark.usefixtures("leaks_collected")

VERSION = "api-version=2024-05"


@pytest.fixture
async def http(hosted: HostedNamespace) -> AsyncIterator[ClientSession]:
    async with ClientSession(f"http://{hosted.host}:{hosted.admin_port}", headers=signed_headers()) as session:
        yield session


async def test_a_fault_is_set_listed_with_its_strikes_and_cleared_over_http(
    hosted: HostedNamespace, http: ClientSession
):
    body = {"kind": "server-busy", "entity": "flights", "count": 1}
    async with http.post("/$faults", json=body) as response:
        created = await response.json()
        assert response.status == 201
    assert created == {**body, "id": "1", "on": ["send"], "probability": 1.0, "strikes": 0, "until": None}
    async with (
        ServiceBusClient.from_connection_string(hosted.connection_string, retry_total=0) as client,
        client.get_queue_sender("flights") as sender,
    ):
        with pytest.raises(ServiceBusServerBusyError):
            await sender.send_messages(ServiceBusMessage("x"), timeout=5)
        await sender.send_messages(ServiceBusMessage("x"), timeout=5)
    async with http.get("/$faults") as response:
        assert await response.json() == {"faults": [{**created, "strikes": 1}]}
    async with http.delete("/$faults/1") as response:
        assert await response.json() == {"faults": [{**created, "strikes": 1}]}
    async with http.delete("/$faults/1") as response:
        assert (response.status, await response.json()) == (
            404,
            {"error": "id is '1'; allowed: none is set", "field": "id", "allowed": "none is set"},
        )
    assert hosted.faults == ()


async def test_deleting_all_faults_clears_each(hosted: HostedNamespace, http: ClientSession):
    for kind in (FaultKind.RESET, FaultKind.REFUSE):
        hosted.set_fault(Fault(kind=kind))
    async with http.delete("/$faults") as response:
        assert [each["kind"] for each in (await response.json())["faults"]] == ["reset", "refuse"]
    assert hosted.faults == ()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"kind": "rset"}', "kind"),
        (b'{"kind": "reset", "count": 0}', "count"),
        (b'{"kind": "reset", "namespace": "other"}', "namespace"),
        (b'{"kind": "reset", "often": 1}', "the member"),
        (b"[1]", "the fault"),
        (b"{", "the body"),
        (b"\xff", "the body"),
        (b"[" * 200_000, "the body"),
        (b'{"kind": "' + b"x" * 200_000 + b'"}', "kind"),
    ],
)
async def test_an_invalid_fault_over_http_is_refused_with_field_and_allowed_values(
    hosted: HostedNamespace, http: ClientSession, body: bytes, field: str
):
    async with http.post("/$faults", data=body, headers={"Content-Type": "application/json"}) as response:
        answer = await response.json()
    assert (response.status, answer["field"]) == (400, field)
    assert answer["error"].startswith(f"{field} is ")
    assert answer["allowed"] in answer["error"]
    assert len(answer["error"]) < 600
    assert hosted.faults == ()


async def test_only_json_sets_a_fault_which_html_forms_cannot_send(hosted: HostedNamespace, http: ClientSession):
    async with http.post("/$faults", data=b'{"kind": "reset"}', headers={"Content-Type": "text/plain"}) as response:
        assert (response.status, (await response.json())["field"]) == (400, "Content-Type")
    assert hosted.faults == ()


async def test_administration_is_refused_frozen_and_reset(hosted: HostedNamespace, http: ClientSession):
    url = f"/flights?{VERSION}"
    on = (Operation.ADMINISTER,)
    hosted.set_fault(Fault(kind=FaultKind.SERVER_BUSY, on=on, entity="flights", count=1))
    async with http.get(url) as response:
        assert (response.status, "server-busy" in await response.text()) == (503, True)
    hosted.set_fault(Fault(kind=FaultKind.RESET, on=on, count=1))
    with pytest.raises(ServerDisconnectedError):
        await http.post(url, data=b"")
    frozen = hosted.set_fault(Fault(kind=FaultKind.FREEZE, on=on))
    with pytest.raises(TimeoutError):
        await http.get(url, timeout=ClientTimeout(total=0.3))
    hosted.clear_faults(frozen.id)
    hosted.set_fault(Fault(kind=FaultKind.FREEZE, on=on, duration=0.3))
    began = asyncio.get_running_loop().time()
    async with http.get(url, timeout=ClientTimeout(total=5)) as response:
        assert response.status == 200
    assert asyncio.get_running_loop().time() - began > 0.2


async def test_packets_of_administration_are_lost_until_the_fault_ends(hosted: HostedNamespace, http: ClientSession):
    fault = hosted.set_fault(Fault(kind=FaultKind.DROP, on=(Operation.ADMINISTER,), entity="flights"))
    asking = asyncio.ensure_future(http.get(f"/flights?{VERSION}"))
    done, _ = await asyncio.wait([asking], timeout=1)
    assert not done
    async with ClientSession(f"http://{hosted.host}:{hosted.admin_port}") as other:
        async with other.delete(f"/$faults/{fault.id}") as response:
            assert response.status == 200
        async with await asyncio.wait_for(asking, 5) as response:
            assert response.status == 200


async def test_faults_from_python_are_set_in_the_namespaces_they_name():
    faults = [Fault(kind=FaultKind.RESET, namespace="contoso"), Fault(kind=FaultKind.FREEZE)]
    async with Emulator(["contoso", "contoso-dr"], faults=faults, fault_seed=7) as emulator:
        kinds = {each.name: [armed.fault.kind for armed in each.faults] for each in emulator.namespaces}
        assert kinds == {"contoso": [FaultKind.RESET, FaultKind.FREEZE], "contoso-dr": [FaultKind.FREEZE]}
        assert {armed.seed for armed in emulator["contoso"].faults} == {7}


async def test_a_frozen_namespace_stops_at_once(hosted: HostedNamespace, http: ClientSession):
    for operation in (Operation.ANYTHING, Operation.ADMINISTER):
        hosted.set_fault(Fault(kind=FaultKind.FREEZE, on=(operation,)))
    with pytest.raises(TimeoutError):
        await http.get(f"/flights?{VERSION}", timeout=ClientTimeout(total=0.2))
    asking = asyncio.ensure_future(http.get(f"/flights?{VERSION}"))
    await asyncio.sleep(0.1)
    await asyncio.wait_for(hosted.stop(), 2)
    await asyncio.gather(asking, return_exceptions=True)


def test_a_fault_for_an_unknown_namespace_is_refused():
    with pytest.raises(FaultError, match="namespace is 'fabrikam'; allowed: contoso, or none for all"):
        Emulator(["contoso"], faults=[Fault(kind=FaultKind.RESET, namespace="fabrikam")])


def test_a_kill_during_a_send_keeps_acknowledged_messages(tmp_path: Path):
    with EmulatorProcess(["contoso"], data=tmp_path) as process:
        served = process["contoso"]
        served.create_queue("flights")
        client = SyncClient.from_connection_string(served.connection_string, retry_total=0)
        with client, client.get_queue_sender("flights") as sender:
            sender.send_messages(ServiceBusMessage("answered"))
            served.set_fault(Fault(kind=FaultKind.KILL))
            with pytest.raises(ServiceBusConnectionError):
                sender.send_messages(ServiceBusMessage("in flight"))
            assert process._running().wait(5) == -9
        process._reap()
        process.start()
        client = SyncClient.from_connection_string(served.connection_string)
        with client, client.get_queue_receiver("flights") as receiver:
            assert [str(message) for message in receiver.receive_messages(5, max_wait_time=2)] == ["answered"]
