"""Azure Resource Manager provisions and cleans up like the data plane (SPEC section 3)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from math import nan
from types import SimpleNamespace
from typing import Any

import pytest

from servicebus_emulator import Emulator, HostedNamespace
from servicebus_emulator.arm.addresses import Scope
from servicebus_emulator.engine.model.descriptions import QueueDescription
from servicebus_pair.core import Endpoint, NamespacePair, PairOptions
from servicebus_pair.core.model.errors import EntityExistsError, EntityNotFoundError, ServiceFaultError
from servicebus_pair.core.model.options import ArmCoordinates
from servicebus_pair.core.protocol.backlog_queues import BACKLOG_QUEUE, backlog_queue
from servicebus_pair.core.sdk.administration import QueueDepth
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
        with pytest.raises(EntityExistsError, match=f"create queue {QUEUES[0]} on contoso-dr through ARM: it exists"):
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
    [
        {},
        {"properties": None},
        {"properties": [1]},
        *({"properties": {"countDetails": {"activeMessageCount": lie}}} for lie in ("x", -1, 2**70, 1e300, nan)),
    ],
)
async def test_an_answer_of_another_shape_is_an_error_of_the_service(lie: dict[str, Any]) -> None:
    arm = answering(lie)
    for call in (arm.message_count(QUEUES[0]), arm.queue_depths("contoso/")):
        with pytest.raises(ServiceFaultError):
            await call


@pytest.mark.parametrize(
    ("properties", "depth", "count"),
    [
        ({"messageCount": 0}, (0, 0, 0, 0), 0),
        ({"countDetails": {"activeMessageCount": None}, "sizeInBytes": None, "messageCount": 0}, (0, 0, 0, 0), 0),
        (
            {
                "countDetails": {
                    "activeMessageCount": 1,
                    "scheduledMessageCount": 2,
                    "deadLetterMessageCount": 3,
                    "transferMessageCount": 4,
                },
                "sizeInBytes": 500,
                "messageCount": 9,
            },
            (1, 2, 3, 500),
            10,
        ),
        ({"countDetails": {"activeMessageCount": None, "transferMessageCount": 4}}, (0, 0, 0, 0), 4),
        # Deferred messages are in the total only.
        ({"countDetails": {"activeMessageCount": 1}, "messageCount": 9}, (1, 0, 0, 0), 9),
    ],
)
async def test_section_3_what_an_answer_lacks_is_zero(
    properties: dict[str, Any], depth: tuple[int, int, int, int], count: int
) -> None:
    arm = answering({"properties": properties})
    assert await arm.queue_depths("CONTOSO/") == [QueueDepth(QUEUES[0], *depth)]
    assert await arm.queue_depths("fabrikam/") == []
    assert await arm.message_count(QUEUES[0]) == count


@pytest.mark.parametrize("properties", [{}, {"countDetails": {"activeMessageCount": None}, "messageCount": None}])
async def test_a_queue_whose_messages_are_not_counted_is_not_known_to_be_empty(properties: dict[str, Any]) -> None:
    with pytest.raises(ServiceFaultError, match="does not say how many messages the queue holds"):
        await answering({"properties": properties}).message_count(QUEUES[0])


class Answer(dict[str, Any]):
    """A model of the SDK: its members are items and attributes."""

    __getattr__ = dict.__getitem__


def answering(queue: dict[str, Any]) -> ArmAdministration:
    """An administration of one queue, for which this is answered."""

    async def answer(*_: object) -> Any:
        return Answer(queue, name=QUEUES[0].replace("/", "~"))

    async def answers(*_: object) -> AsyncIterator[Any]:
        yield await answer()

    arm = ArmCoordinates(subscription_id="s", resource_group="g", credential=Bearer())
    made = ArmAdministration(Endpoint.from_credential("contoso.servicebus.windows.net", Bearer(), arm=arm), arm)
    made._client = SimpleNamespace(queues=SimpleNamespace(get=answer, list_by_namespace=answers))  # type: ignore[assignment]
    return made
