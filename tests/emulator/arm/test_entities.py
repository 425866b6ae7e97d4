"""The unmodified azure-mgmt-servicebus manages queues, topics, subscriptions and rules."""

from __future__ import annotations

from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.mgmt.servicebus.aio import ServiceBusManagementClient
from azure.mgmt.servicebus.models import (
    Action,
    CorrelationFilter,
    Rule,
    Ruleproperties,
    SBQueue,
    SBSubscription,
    SBSubscriptionProperties,
    SBTopic,
    SBTopicProperties,
    SqlFilter,
)
from azure.servicebus import ServiceBusMessage

from servicebus_emulator import HostedNamespace
from servicebus_emulator.engine.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.model.rule_descriptions import RuleDescription, SqlAction
from servicebus_emulator.engine.model.rule_descriptions import SqlFilter as EngineSqlFilter
from tests.emulator.support.arm_client import GROUP, PREFIX
from tests.emulator.support.sdk_client import connect_sdk

FOR_EVER = "P10675199DT2H48M5.4775807S"
CONTOSO = (GROUP, "contoso")
PROPERTIES: dict[type[Any], dict[str, Any]] = {
    QueueDescription: {
        "lockDuration": "PT30S",
        "maxSizeInMegabytes": 2048,
        "maxMessageSizeInKilobytes": 1024,
        "requiresDuplicateDetection": True,
        "requiresSession": False,
        "defaultMessageTimeToLive": "P7DT0.0000001S",
        "deadLetteringOnMessageExpiration": True,
        "duplicateDetectionHistoryTimeWindow": "PT1H",
        "maxDeliveryCount": 2_147_483_647,
        "status": "ReceiveDisabled",
        "enableBatchedOperations": False,
        "autoDeleteOnIdle": FOR_EVER,
        "enablePartitioning": True,
        "enableExpress": True,
        "forwardTo": "sink",
        "forwardDeadLetteredMessagesTo": "sink",
        "userMetadata": "späte Flüge",
    },
    TopicDescription: {
        "defaultMessageTimeToLive": "PT1M",
        "maxSizeInMegabytes": 5120,
        "maxMessageSizeInKilobytes": 100,
        "requiresDuplicateDetection": True,
        "duplicateDetectionHistoryTimeWindow": "P1D",
        "enableBatchedOperations": False,
        "status": "SendDisabled",
        "supportOrdering": False,
        "autoDeleteOnIdle": "P90D",
        "enablePartitioning": True,
        "enableExpress": True,
        "userMetadata": "x",
    },
    SubscriptionDescription: {
        "lockDuration": "PT5M",
        "requiresSession": True,
        "defaultMessageTimeToLive": FOR_EVER,
        "deadLetteringOnFilterEvaluationExceptions": False,
        "deadLetteringOnMessageExpiration": True,
        "maxDeliveryCount": 3,
        "status": "Disabled",
        "enableBatchedOperations": False,
        "autoDeleteOnIdle": "PT6M",
        "forwardDeadLetteredMessagesTo": "sink",
        "userMetadata": "y",
    },
}


async def put(arm: ServiceBusManagementClient, kind: type[Any], properties: dict[str, Any]) -> Any:
    document: Any = {"properties": properties}
    if kind is QueueDescription:
        return await arm.queues.create_or_update(*CONTOSO, "q", document)
    if kind is TopicDescription:
        return await arm.topics.create_or_update(*CONTOSO, "t", document)
    await arm.topics.create_or_update(*CONTOSO, "t", SBTopic())
    return await arm.subscriptions.create_or_update(*CONTOSO, "t", "s", document)


async def get(arm: ServiceBusManagementClient, kind: type[Any]) -> Any:
    if kind is QueueDescription:
        return await arm.queues.get(*CONTOSO, "q")
    if kind is TopicDescription:
        return await arm.topics.get(*CONTOSO, "t")
    return await arm.subscriptions.get(*CONTOSO, "t", "s")


@pytest.mark.parametrize("kind", PROPERTIES)
async def test_every_property_is_kept_and_returned(
    arm: ServiceBusManagementClient, contoso: HostedNamespace, kind: type[Any]
):
    contoso.namespace.create_queue(QueueDescription("sink"))
    created = await put(arm, kind, PROPERTIES[kind])
    assert created == await get(arm, kind)
    expected = {**PROPERTIES[kind]}
    if "maxSizeInMegabytes" in expected:
        expected["maxSizeInMegabytes"] *= 16  # partitions
    assert {name: created["properties"][name] for name in PROPERTIES[kind]} == expected


async def test_a_queue_has_its_identity_and_runtime_properties(
    arm: ServiceBusManagementClient, contoso: HostedNamespace
):
    await arm.queues.create_or_update(*CONTOSO, "flights~late", SBQueue())
    async with connect_sdk(contoso) as sdk, sdk.queue("flights/late") as (sender, receiver):
        await sender.send_messages([ServiceBusMessage(b"x" * 100) for _ in range(3)])
        [message] = await receiver.receive_messages(1)
        await receiver.dead_letter_message(message)
    queue = await arm.queues.get(*CONTOSO, "Flights~Late")
    assert (queue.id, queue.name, queue.type) == (
        f"{PREFIX}/queues/flights~late",
        "flights~late",
        "Microsoft.ServiceBus/namespaces/queues",
    )
    shown = queue.properties
    assert shown.message_count == 3
    assert shown.count_details.active_message_count == 2
    assert shown.count_details.dead_letter_message_count == 1
    assert shown.size_in_bytes > 300
    assert shown.created_at <= shown.accessed_at


async def test_a_queue_can_be_put_back_unchanged(arm: ServiceBusManagementClient, contoso: HostedNamespace):
    described = contoso.namespace.create_queue(QueueDescription("q", max_delivery_count=2_147_483_647))
    read = await arm.queues.get(*CONTOSO, "q")
    # The client's own type counts seconds in floating point, which loses the last digits of TimeSpan.MaxValue.
    read.properties.auto_delete_on_idle = read.properties.auto_delete_on_idle
    await arm.queues.create_or_update(*CONTOSO, "q", read)
    assert contoso.namespace.get_queue("q") == described


async def test_rules_stay_when_their_subscription_is_put_again(
    arm: ServiceBusManagementClient, contoso: HostedNamespace
):
    await put(arm, SubscriptionDescription, {})
    late = Rule(properties=Ruleproperties(sql_filter=SqlFilter(sql_expression="delay > 15")))
    await arm.rules.create_or_update(*CONTOSO, "t", "s", "late", late)
    await put(arm, SubscriptionDescription, {"maxDeliveryCount": 5})
    assert [rule.name for rule in contoso.namespace.get_subscription("t", "s").rules] == ["$Default", "late"]


@pytest.mark.parametrize(
    ("kind", "name", "value", "allowed"),
    [
        (QueueDescription, "lockDuration", "PT6M", "PT0.0000001S .. PT5M"),
        (QueueDescription, "lockDuration", "1 minute", "an ISO 8601 duration such as PT1M"),
        (QueueDescription, "autoDeleteOnIdle", "P10675199DT2H48M5.478S", "at most P10675199DT2H48M5.4775807S"),
        (QueueDescription, "maxDeliveryCount", 0, "1 .. 2147483647"),
        (QueueDescription, "maxDeliveryCount", True, "a whole number"),
        (QueueDescription, "status", "Renaming", "Active, Disabled, SendDisabled, ReceiveDisabled"),
        (QueueDescription, "enableExpress", "yes", "true, false"),
        (QueueDescription, "forwardTo", 7, "a string"),
        (QueueDescription, "lockDurations", "PT1M", "only defaultMessageTimeToLive"),
        (TopicDescription, "maxSizeInMegabytes", 0, "1 .. 81920"),
        (SubscriptionDescription, "isClientAffine", True, "subscriptions of JMS clients are not supported"),
        (SubscriptionDescription, "duplicateDetectionHistoryTimeWindow", "x", "an ISO 8601 duration"),
    ],
)
async def test_an_invalid_value_is_refused_with_its_name_and_range(
    arm: ServiceBusManagementClient, kind: type[Any], name: str, value: object, allowed: str
):
    with pytest.raises(HttpResponseError, match=allowed) as refused:
        await put(arm, kind, {name: value})
    assert refused.value.status_code == 400
    assert refused.value.error.code == "BadRequest"
    assert f"properties.{name} is " in str(refused.value)


async def test_fields_fixed_at_creation_cannot_be_changed(arm: ServiceBusManagementClient):
    await put(arm, QueueDescription, {"requiresSession": True})
    with pytest.raises(HttpResponseError, match="requires_session is False; allowed: True") as refused:
        await put(arm, QueueDescription, {"requiresSession": False})
    assert refused.value.status_code == 400


async def test_a_path_belongs_to_one_entity(arm: ServiceBusManagementClient):
    await put(arm, QueueDescription, {})
    with pytest.raises(ResourceExistsError, match="'q' exists already") as refused:
        await arm.topics.create_or_update(*CONTOSO, "q", SBTopic())
    assert refused.value.error.code == "Conflict"


async def test_a_missing_entity_is_not_found_and_its_deletion_succeeds(arm: ServiceBusManagementClient):
    await arm.topics.create_or_update(*CONTOSO, "t", SBTopic())
    await arm.subscriptions.create_or_update(*CONTOSO, "t", "s", SBSubscription())
    for missing in (
        arm.queues.get(*CONTOSO, "none"),
        arm.queues.get(*CONTOSO, "t"),
        arm.topics.get(*CONTOSO, "none"),
        arm.subscriptions.get(*CONTOSO, "t", "none"),
        arm.rules.get(*CONTOSO, "t", "s", "none"),
    ):
        with pytest.raises(ResourceNotFoundError) as refused:
            await missing
        assert refused.value.error.code == "NotFound"
    await arm.queues.delete(*CONTOSO, "none")
    await arm.topics.delete(*CONTOSO, "none")
    await arm.subscriptions.delete(*CONTOSO, "t", "none")
    await arm.rules.delete(*CONTOSO, "t", "s", "none")


async def test_a_missing_parent_is_reported(arm: ServiceBusManagementClient):
    for missing in (
        arm.queues.get(GROUP, "none", "q"),
        arm.subscriptions.get(*CONTOSO, "none", "s"),
        arm.rules.get(*CONTOSO, "none", "s", "r"),
    ):
        with pytest.raises(ResourceNotFoundError) as refused:
            await missing
        assert refused.value.error.code == "ParentResourceNotFound"


async def test_a_tilde_stands_for_a_slash_in_every_name(arm: ServiceBusManagementClient, contoso: HostedNamespace):
    await arm.queues.create_or_update(*CONTOSO, "a~b~c", SBQueue())
    await arm.topics.create_or_update(*CONTOSO, "dir~t", SBTopic())
    subscription = await arm.subscriptions.create_or_update(*CONTOSO, "dir~t", "s", SBSubscription())
    rule = await arm.rules.get(*CONTOSO, "dir~t", "s", "$Default")
    assert [each.path for each in contoso.namespace.list_queues()] == ["a/b/c"]
    assert subscription.id == f"{PREFIX}/topics/dir~t/subscriptions/s"
    assert rule.id == f"{PREFIX}/topics/dir~t/subscriptions/s/rules/$Default"
    assert [each.name async for each in arm.queues.list_by_namespace(*CONTOSO)] == ["a~b~c"]
    await arm.queues.delete(*CONTOSO, "a~b~c")
    assert contoso.namespace.list_queues() == ()


async def test_an_encoded_slash_is_refused_with_the_reason(arm: ServiceBusManagementClient, contoso: HostedNamespace):
    contoso.namespace.create_queue(QueueDescription("a/b"))
    with pytest.raises(ResourceNotFoundError, match=r"queues/a%2Fb'; allowed: .* with '~' for each '/' of a name"):
        await arm.queues.get(*CONTOSO, "a/b")
    with pytest.raises(ResourceNotFoundError, match="with '~' for each '/'"):
        await arm.queues.create_or_update(*CONTOSO, "c/d", SBQueue())
    assert [each.path for each in contoso.namespace.list_queues()] == ["a/b"]


async def test_lists_come_in_pages(arm: ServiceBusManagementClient, contoso: HostedNamespace):
    names = [f"q{number:03}" for number in range(205)]
    for name in names:
        contoso.namespace.create_queue(QueueDescription(name))
    assert [each.name async for each in arm.queues.list_by_namespace(*CONTOSO)] == names
    pages = [[each.name async for each in page] async for page in arm.queues.list_by_namespace(*CONTOSO).by_page()]
    assert [len(page) for page in pages] == [100, 100, 5]
    assert [each.name async for each in arm.queues.list_by_namespace(*CONTOSO, skip=200, top=2)] == names[200:]


async def test_topics_subscriptions_and_rules_are_listed_by_parent(arm: ServiceBusManagementClient):
    for topic in ("t1", "t2"):
        await arm.topics.create_or_update(*CONTOSO, topic, SBTopic(properties=SBTopicProperties()))
    for name in ("a", "b"):
        await arm.subscriptions.create_or_update(
            *CONTOSO, "t2", name, SBSubscription(properties=SBSubscriptionProperties())
        )
    await arm.rules.create_or_update(*CONTOSO, "t2", "a", "r", Rule())
    topics = [each async for each in arm.topics.list_by_namespace(*CONTOSO)]
    assert [(each.name, each.properties and each.properties.subscription_count) for each in topics] == [
        ("t1", 0),
        ("t2", 2),
    ]
    assert [each.name async for each in arm.subscriptions.list_by_topic(*CONTOSO, "t2", top=1)] == ["a", "b"]
    assert [each.name async for each in arm.rules.list_by_subscriptions(*CONTOSO, "t2", "a")] == ["$Default", "r"]
    assert [each.name async for each in arm.queues.list_by_namespace(GROUP, "fabrikam")] == []


async def test_rules_are_created_changed_and_deleted(arm: ServiceBusManagementClient, contoso: HostedNamespace):
    await put(arm, SubscriptionDescription, {})
    await arm.rules.delete(*CONTOSO, "t", "s", "$Default")
    late = Ruleproperties(sql_filter=SqlFilter(sql_expression="delay > 15"), action=Action(sql_expression="SET l = 1"))
    created = await arm.rules.create_or_update(*CONTOSO, "t", "s", "late", Rule(properties=late))
    assert created.properties.filter_type == "SqlFilter"
    assert created.properties.sql_filter.compatibility_level == 20
    (stored,) = contoso.namespace.get_subscription("t", "s").rules
    assert stored == RuleDescription(
        "late", EngineSqlFilter(expression="delay > 15"), SqlAction(expression="SET l = 1")
    )
    by_route = CorrelationFilter(correlation_id="c", label="LH400", properties={"from": "FRA"})
    updated = await arm.rules.create_or_update(
        *CONTOSO, "t", "s", "LATE", Rule(properties=Ruleproperties(correlation_filter=by_route))
    )
    assert updated.name == "late"
    assert updated.properties.correlation_filter.as_dict() == {
        "correlationId": "c",
        "label": "LH400",
        "properties": {"from": "FRA"},
    }
    assert len(contoso.namespace.get_subscription("t", "s").rules) == 1


async def test_a_rule_can_be_put_back_unchanged(arm: ServiceBusManagementClient, contoso: HostedNamespace):
    with_parameters = RuleDescription("r", filter=EngineSqlFilter(expression="a = @b", parameters=(("@b", 1),)))
    contoso.namespace.create_topic(TopicDescription("t"))
    contoso.namespace.create_subscription(SubscriptionDescription("t", "s", rules=(with_parameters,)))
    await arm.rules.create_or_update(*CONTOSO, "t", "s", "r", await arm.rules.get(*CONTOSO, "t", "s", "r"))
    assert contoso.namespace.get_subscription("t", "s").rules == (with_parameters,)


@pytest.mark.parametrize(
    ("properties", "named"),
    [
        ({"sqlFilter": {"sqlExpression": "delay >"}}, "properties.sqlFilter is 'delay >'; allowed: a valid expression"),
        ({"action": {"sqlExpression": "DROP x"}}, "properties.action is 'DROP x'"),
        ({"filterType": "TrueFilter"}, 'properties.filterType is "TrueFilter"; allowed: SqlFilter, CorrelationFilter'),
        ({"filterType": "SqlFilter", "correlationFilter": {"to": "x"}}, "null, because filterType is SqlFilter"),
        ({"filterType": "CorrelationFilter"}, "properties.correlationFilter is 'empty'; allowed: at least one"),
        ({"correlationFilter": {"properties": {"a": []}}}, r"correlationFilter\.properties\.a is \[\]; allowed: a str"),
        ({"sqlFilter": {"sqlExpression": "1=1", "compatibilityLevel": "20"}}, "compatibilityLevel is .*whole number"),
    ],
)
async def test_a_rule_that_cannot_be_evaluated_is_refused(
    arm: ServiceBusManagementClient, contoso: HostedNamespace, properties: dict[str, Any], named: str
):
    await put(arm, SubscriptionDescription, {})
    document: Any = {"properties": properties}
    with pytest.raises(HttpResponseError, match=named) as refused:
        await arm.rules.create_or_update(*CONTOSO, "t", "s", "r", document)
    assert refused.value.status_code == 400
    [rule] = contoso.namespace.get_subscription("t", "s").rules
    assert rule.filter == EngineSqlFilter(expression="1=1")
