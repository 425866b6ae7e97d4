"""Azure Resource Manager provisions and cleans up like the data plane (SPEC section 3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import pytest

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.arm.addresses import Scope
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from servicebus_pair.core.model.errors import EntityExistsError, EntityNotFoundError, ServiceFaultError
from servicebus_pair.core.model.options import ArmCoordinates
from servicebus_pair.core.protocol.backlog_queues import BACKLOG_QUEUE, backlog_queue
from servicebus_pair.core.sdk.administration.arm import ArmAdministration
from tests.core.support.local_pair import endpoint, numbered
from tests.emulator.support.arm_client import Bearer

QUEUES = tuple(backlog_queue("contoso", index) for index in range(3))
EXTRA = backlog_queue("contoso", 7)


@dataclass(frozen=True)
class Managed:
    """A pair whose secondary is managed through ARM, and its namespaces."""

    pair: NamespacePair
    secondary: HostedNamespace
    emulator: Emulator

    def arm(self) -> ArmAdministration:
        return arm_of(through_arm(self.emulator))


def arm_of(managed: Endpoint, kind: type[ArmAdministration] = ArmAdministration) -> ArmAdministration:
    assert managed.arm is not None
    return kind(managed, managed.arm)


def through_arm(emulator: Emulator, namespace: str = "contoso-dr") -> Endpoint:
    """Return the endpoint of a namespace that is managed through Resource Manager."""
    coordinates = ArmCoordinates(
        subscription_id=Scope().subscription,
        resource_group=Scope().resource_group,
        credential=Bearer(),
        management_endpoint=emulator.arm_url,
    )
    return replace(endpoint(emulator[namespace]), ca_file=str(emulator.ca_file), arm=coordinates)


@asynccontextmanager
async def managed_pair() -> AsyncIterator[Managed]:
    async with Emulator(["contoso", "contoso-dr"]) as emulator:
        emulator["contoso"].namespace.create_queue(QueueDescription("flights"))
        options = PairOptions(backlog_queue_count=3)
        async with NamespacePair(endpoint(emulator["contoso"]), through_arm(emulator), options) as pair:
            yield Managed(pair, emulator["contoso-dr"], emulator)


@pytest.fixture
async def managed() -> AsyncIterator[Managed]:
    async with managed_pair() as made:
        yield made


async def test_section_3_arm_deletes_empty_queues_and_counts_others(managed: Managed) -> None:
    await managed.pair.provision()
    async with managed.pair.sender("flights") as sender:
        await managed.pair.fail_over("flights", reason="test")
        [used] = (await sender.send(numbered(4))).backlog_queues
    depths = {depth.path: depth.active for depth in await managed.pair.backlog_depths()}
    assert depths == {**dict.fromkeys(QUEUES, 0), used: 4}
    report = await managed.pair.cleanup(everything=True)
    assert report.kept == {used: 4}
    assert sorted(report.deleted) == sorted(set(QUEUES) - {used})
    assert (await managed.pair.cleanup(everything=True, force=True)).deleted == (used,)


async def test_section_3_arm_disables_and_enables_sending(managed: Managed) -> None:
    await managed.pair.provision()
    async with managed.arm() as through_arm:
        await through_arm.set_sending(QUEUES[0], enabled=False)
        await through_arm.set_sending(QUEUES[0], enabled=True)
        assert (await through_arm.list_queues())[QUEUES[0]] == BACKLOG_QUEUE
        with pytest.raises(EntityExistsError):
            await through_arm.create_queue(QUEUES[0], BACKLOG_QUEUE)
        await through_arm.delete_queue(QUEUES[0])
        with pytest.raises(EntityNotFoundError):
            await through_arm.delete_queue(QUEUES[0])


@pytest.mark.parametrize(
    ("management_endpoint", "scope"),
    [
        (None, "https://management.azure.com/.default"),
        ("https://management.azure.com/", "https://management.azure.com/.default"),
        ("https://management.usgovcloudapi.net", "https://management.core.usgovcloudapi.net/.default"),
        ("https://management.chinacloudapi.cn", "https://management.chinacloudapi.cn/.default"),
        ("https://127.0.0.1:5400", "https://management.azure.com/.default"),
    ],
)
async def test_each_cloud_has_its_own_token_audience(management_endpoint: str | None, scope: str) -> None:
    arm = ArmCoordinates(
        subscription_id="s", resource_group="g", credential=Bearer(), management_endpoint=management_endpoint
    )
    found = Endpoint.from_credential("contoso.servicebus.windows.net", Bearer(), arm=arm)
    async with ArmAdministration(found, arm) as administration:
        assert administration._client._config.credential_scopes == [scope]


@pytest.mark.parametrize(
    "lie",
    [{}, {"properties": None}, {"properties": [1]}, {"properties": {"countDetails": {"activeMessageCount": "x"}}}],
)
async def test_an_answer_of_another_shape_is_an_error_of_the_service(
    monkeypatch: pytest.MonkeyPatch, lie: dict[str, Any]
) -> None:
    async with managed_pair() as managed, managed.arm() as arm:

        async def answer(*_: object) -> dict[str, Any]:
            return {"name": QUEUES[0].replace("/", "~"), **lie}

        async def answers(*_: object) -> AsyncIterator[dict[str, Any]]:
            yield await answer()

        monkeypatch.setattr(arm._client.queues, "get", answer)
        monkeypatch.setattr(arm._client.queues, "list_by_namespace", answers)
        for call in (arm.message_count(QUEUES[0]), arm.queue_depths("contoso/")):
            with pytest.raises(ServiceFaultError):
                await call
