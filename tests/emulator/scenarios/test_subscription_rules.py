"""Rules of subscriptions are created, listed, changed and applied with the unmodified SDKs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import pytest
from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, ServiceBusReceiver
from azure.servicebus._common.mgmt_handlers import default
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.exceptions import MessagingEntityAlreadyExistsError, MessagingEntityNotFoundError, ServiceBusError
from azure.servicebus.management import (
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from servicebus_emulator import HostedNamespace
from servicebus_emulator.engine.model.descriptions import SubscriptionDescription, TopicDescription
from servicebus_emulator.engine.model.rule_descriptions import CorrelationFilter, RuleDescription, SqlAction, SqlFilter
from tests.emulator.support.sdk_client import SdkClient, bodies

pytestmark = pytest.mark.asyncio(loop_scope="session")

VALUES: dict[str, str | float | bool | datetime | timedelta] = {
    "text": "é",
    "int": 5,
    "long": 2**40,
    "double": 2.5,
    "flag": True,
    "time": datetime(2026, 11, 20, 12, tzinfo=UTC),
    "time without a zone": datetime(2026, 11, 20, 12),  # noqa: DTZ001 - as the client's own tests use it
    "span": timedelta(minutes=90),
}
_numbers = count(1)


@pytest.fixture
def topic(contoso: HostedNamespace) -> str:
    """The path of a new topic with a subscription "s" that has the default rule."""
    path = contoso.namespace.create_topic(TopicDescription(f"delays/{next(_numbers)}")).path
    contoso.namespace.create_subscription(SubscriptionDescription(path, "s"))
    return path


async def test_rules_of_every_kind_keep_typed_values(admin: ServiceBusAdministrationClient, topic: str):
    parameters = {f"@{name}": value for name, value in VALUES.items()}
    filters: dict[str, Any] = {
        "true": TrueRuleFilter(),
        "false": FalseRuleFilter(),
        "sql": SqlRuleFilter("minutes > @int AND EXISTS(sys.Label)", parameters=parameters),
        "correlation": CorrelationRuleFilter(
            correlation_id="c",
            message_id="m",
            to="t",
            reply_to="r",
            label="l",
            session_id="s",
            reply_to_session_id="rs",
            content_type="ct",
            properties=VALUES,
        ),
    }
    action = SqlRuleAction("SET x = @text; REMOVE y", parameters=parameters)
    for name, chosen in filters.items():
        created = await admin.create_rule(topic, "s", name, filter=chosen, action=action)
        assert (created.name, type(created.filter)) == (name, type(chosen))

    rules = {rule.name: rule async for rule in admin.list_rules(topic, "s")}

    assert list(rules) == ["$Default", *filters]
    assert rules["sql"].filter.sql_expression == "minutes > @int AND EXISTS(sys.Label)"
    assert dict(rules["sql"].filter.parameters) == parameters
    assert dict(rules["correlation"].filter.properties) == VALUES
    compared = [name for name in vars(filters["correlation"]) if name != "properties"]
    for name in compared:
        assert getattr(rules["correlation"].filter, name) == getattr(filters["correlation"], name)
    for name in filters:
        assert rules[name].action.sql_expression == action.sql_expression
        assert dict(rules[name].action.parameters) == parameters


async def test_rules_are_updated_deleted_and_validated(admin: ServiceBusAdministrationClient, topic: str):
    rule = await admin.create_rule(topic, "s", "r", filter=SqlRuleFilter("n = 1"))
    with pytest.raises(ResourceExistsError):
        await admin.create_rule(topic, "s", "R", filter=SqlRuleFilter("n = 2"))

    rule.filter = CorrelationRuleFilter(label="late")
    rule.action = SqlRuleAction("SET n = 2")
    await admin.update_rule(topic, "s", rule)
    changed = await admin.get_rule(topic, "s", "r")
    assert (changed.filter.label, changed.action.sql_expression) == ("late", "SET n = 2")

    rule.filter = SqlRuleFilter("n ==")
    with pytest.raises(HttpResponseError, match="found '=' at character 4; allowed: a constant") as refused:
        await admin.update_rule(topic, "s", rule)
    assert refused.value.status_code == 400

    await admin.delete_rule(topic, "s", "r")
    for attempt in (admin.delete_rule(topic, "s", "r"), admin.update_rule(topic, "s", rule)):
        with pytest.raises(ResourceNotFoundError):
            await attempt


async def test_rules_select_and_modify_messages(admin: ServiceBusAdministrationClient, sdk: SdkClient, topic: str):
    await admin.delete_rule(topic, "s", "$Default")
    late = SqlRuleFilter("minutes > @limit AND dest LIKE 'J%'", parameters={"@limit": 60})
    await admin.create_rule(topic, "s", "late", filter=late, action=SqlRuleAction("SET sys.Label = 'late'"))
    await admin.create_rule(topic, "s", "wanted", filter=CorrelationRuleFilter(properties={"carrier": "UA"}))
    sender = sdk.client.get_topic_sender(topic)
    receiver = sdk.client.get_subscription_receiver(topic, "s", max_wait_time=2)
    flights: list[tuple[str, dict[str | bytes, Any]]] = [
        ("both", {"minutes": 61, "dest": "JFK", "carrier": "UA"}),
        ("late", {"minutes": 99.5, "dest": "JFK", "carrier": "AA"}),
        ("neither", {"minutes": 10, "dest": "JFK", "carrier": "AA"}),
        ("wanted", {"dest": "SFO", "carrier": "UA"}),
    ]

    async with sdk.opened(sender, receiver):
        await sender.send_messages([ServiceBusMessage(body, application_properties=fields) for body, fields in flights])
        received = await receiver.receive_messages(10, max_wait_time=2)

    assert bodies(received) == ["both", "both", "late", "wanted"]
    assert [message.subject for message in received] == [None, "late", "late", None]
    names = [(message.application_properties or {}).get(b"RuleName") for message in received]
    assert names == [None, b"late", b"late", None]


async def ask(receiver: ServiceBusReceiver, operation: str, body: dict[str, Any]) -> Any:
    """Send a request of another language's client."""
    return await receiver._mgmt_request_response_with_retry(
        f"com.microsoft:{operation}".encode(), body, default, timeout=5
    )


async def test_rules_are_managed_over_amqp(contoso: HostedNamespace, sdk: SdkClient, topic: str):
    receiver = sdk.client.get_subscription_receiver(topic, "s", max_wait_time=2)
    correlation = {"correlation-id": None, "label": "late", "properties": {"n": 5, "x": 2.5, "b": True}}

    async with sdk.opened(receiver):
        sql = {"sql-filter": {"expression": "n = 1"}, "sql-rule-action": {"expression": "SET n = 2"}}
        await ask(receiver, "add-rule", {"rule-name": "sql", "rule-description": sql})
        await ask(receiver, "add-rule", {"rule-name": "c", "rule-description": {"correlation-filter": correlation}})
        listed = await ask(receiver, "enumerate-rules", {"top": 100, "skip": 1})
        await ask(receiver, "remove-rule", {"rule-name": "$Default"})
        with pytest.raises(MessagingEntityAlreadyExistsError):
            await ask(receiver, "add-rule", {"rule-name": "SQL", "rule-description": sql})
        with pytest.raises(MessagingEntityNotFoundError):
            await ask(receiver, "remove-rule", {"rule-name": "$Default"})
        wrong = {"sql-filter": {"expression": "n >"}}
        with pytest.raises(ServiceBusError, match="found the end at character 4"):
            await ask(receiver, "add-rule", {"rule-name": "wrong", "rule-description": wrong})

    assert contoso.namespace.get_subscription(topic, "s").rules == (
        RuleDescription("sql", SqlFilter(expression="n = 1"), SqlAction(expression="SET n = 2")),
        RuleDescription("c", CorrelationFilter(label="late", properties=(("n", 5), ("x", 2.5), ("b", True)))),
    )
    first, second = (entry[b"rule-description"] for entry in listed[b"rules"])
    assert first == [[b"n = 1"], [b"SET n = 2"], b"sql"]
    assert second[0] == [None, None, None, None, b"late", None, None, None, {b"n": 5, b"x": 2.5, b"b": True}]
    assert second[1:] == [[], b"c"]
