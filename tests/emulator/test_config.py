"""The configuration file, in the shape of Microsoft's emulator."""

from __future__ import annotations

import copy
import json
from datetime import timedelta
from typing import Any

import pytest

from servicebus_emulator.config import ConfigError, parse_config
from servicebus_emulator.engine.model.descriptions import (
    INT_MAX,
    EntityStatus,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.rule_descriptions import CorrelationFilter, RuleDescription, SqlAction, SqlFilter
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.engine.namespace.tiers import Tier

HOUR = TimeSpan.of(timedelta(hours=1))
WINDOW = TimeSpan.of(timedelta(seconds=20))

ORIGINAL: dict[str, Any] = {
    "UserConfig": {
        "Namespaces": [
            {
                "Name": "sbemulatorns",
                "Queues": [
                    {
                        "Name": "orders",
                        "Properties": {
                            "DeadLetteringOnMessageExpiration": True,
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "ForwardDeadLetteredMessagesTo": "archive",
                            "ForwardTo": "",
                            "LockDuration": "PT1M",
                            "MaxDeliveryCount": 3,
                            "RequiresDuplicateDetection": True,
                            "RequiresSession": True,
                        },
                    },
                    {"Name": "archive"},
                ],
                "Topics": [
                    {
                        "Name": "delays",
                        "Properties": {
                            "DefaultMessageTimeToLive": "PT1H",
                            "DuplicateDetectionHistoryTimeWindow": "PT20S",
                            "RequiresDuplicateDetection": False,
                        },
                        "Subscriptions": [
                            {
                                "Name": "filtered",
                                "Properties": {"LockDuration": "PT5M", "MaxDeliveryCount": 3, "ForwardTo": ""},
                                "Rules": [
                                    {
                                        "Name": "by-property",
                                        "Properties": {
                                            "FilterType": "Correlation",
                                            "CorrelationFilter": {
                                                "ContentType": "application/text",
                                                "CorrelationId": "id1",
                                                "Label": "subject1",
                                                "MessageId": "msgid1",
                                                "ReplyTo": "someQueue",
                                                "ReplyToSessionId": "sessionId",
                                                "SessionId": "session1",
                                                "To": "xyz",
                                                "Properties": {"carrier": "UA", "minutes": 15},
                                            },
                                        },
                                    },
                                    {
                                        "Name": "by-sql",
                                        "Properties": {
                                            "FilterType": "Sql",
                                            "SqlFilter": {"SqlExpression": "minutes > 60"},
                                            "Action": {"SqlExpression": "SET late = 1"},
                                        },
                                    },
                                ],
                            },
                            {"Name": "all"},
                        ],
                    }
                ],
            }
        ],
        "Logging": {"Type": "File"},
    }
}


def changed(path: str, value: object) -> str:
    """Return the original with one value put in place: ``a.0.b`` names members and indexes."""
    document = copy.deepcopy(ORIGINAL)
    *parents, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place: Any = document
    for step in parents:
        place = place[step]
    place[last] = value
    return json.dumps(document)


def test_a_file_of_the_original_is_read_unchanged():
    (namespace,) = parse_config(json.dumps(ORIGINAL))

    assert namespace.name == "sbemulatorns"
    assert namespace.queues == (
        QueueDescription(
            "orders",
            dead_lettering_on_message_expiration=True,
            default_message_time_to_live=HOUR,
            duplicate_detection_history_time_window=WINDOW,
            forward_dead_lettered_messages_to="archive",
            max_delivery_count=3,
            requires_duplicate_detection=True,
            requires_session=True,
        ),
        QueueDescription("archive"),
    )
    assert namespace.topics == (
        TopicDescription("delays", default_message_time_to_live=HOUR, duplicate_detection_history_time_window=WINDOW),
    )
    filtered, everything = namespace.subscriptions
    assert everything == SubscriptionDescription("delays", "all")
    assert (filtered.lock_duration, filtered.max_delivery_count) == (TimeSpan.of(timedelta(minutes=5)), 3)
    assert filtered.rules == (
        RuleDescription(
            "by-property",
            CorrelationFilter(
                content_type="application/text",
                correlation_id="id1",
                label="subject1",
                message_id="msgid1",
                reply_to="someQueue",
                reply_to_session_id="sessionId",
                session_id="session1",
                to="xyz",
                properties=(("carrier", "UA"), ("minutes", 15)),
            ),
        ),
        RuleDescription("by-sql", SqlFilter(expression="minutes > 60"), SqlAction(expression="SET late = 1")),
    )


def test_several_namespaces_and_all_properties_are_read():
    text = json.dumps(
        {
            "UserConfig": {
                "Namespaces": [
                    {
                        "Name": "contoso",
                        "Queues": [
                            {
                                "Name": "contoso/x-servicebus-transfer/0",
                                "Properties": {
                                    "MaxDeliveryCount": INT_MAX,
                                    "AutoDeleteOnIdle": "P10675199DT2H48M5.4775807S",
                                    "MaxSizeInMegabytes": 5120,
                                    "Status": "SendDisabled",
                                    "UserMetadata": "backlog",
                                },
                            }
                        ],
                    },
                    {"Name": "contoso-dr", "DeliverPings": True, "Tier": "Premium", "Throttling": True},
                ]
            }
        }
    )

    first, second = parse_config(text)

    assert first.queues == (
        QueueDescription(
            "contoso/x-servicebus-transfer/0",
            max_delivery_count=INT_MAX,
            auto_delete_on_idle=TimeSpan.MAX,
            max_size_in_megabytes=5120,
            status=EntityStatus.SEND_DISABLED,
            user_metadata="backlog",
        ),
    )
    assert (second.name, second.queues, second.topics, second.subscriptions) == ("contoso-dr", (), (), ())
    assert (first.deliver_pings, second.deliver_pings) == (False, True)
    assert (first.tier, first.throttle) == (None, False)
    assert (second.tier, second.throttle) == (Tier.PREMIUM, True)


NAMESPACE = "UserConfig.Namespaces.0"
QUEUE = f"{NAMESPACE}.Queues.0"
SUBSCRIPTION = f"{NAMESPACE}.Topics.0.Subscriptions.0"
RULE = f"{SUBSCRIPTION}.Rules.0.Properties"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("UserConfig", [], r"UserConfig is \[\]; allowed: an object"),
        ("UserConfg", {}, r"UserConfg is \{\}; allowed: only UserConfig, \$schema"),
        ("UserConfig.Namespaces", [], r"UserConfig.Namespaces is \[\]; allowed: a list of at least 1"),
        ("UserConfig.Logging.Type", "Syslog", r"Logging.Type is 'Syslog'; allowed: File, Console"),
        (f"{NAMESPACE}.Name", "", r"UserConfig.Namespaces\[0\].Name is ''; allowed: 1 to 50 letters"),
        (f"{NAMESPACE}.Name", 7, r"UserConfig.Namespaces\[0\].Name is 7; allowed: a string"),
        (f"{NAMESPACE}.Tier", "Free", r"Namespaces\[0\].Tier is 'Free'; allowed: Basic, Standard, Premium"),
        (f"{NAMESPACE}.Tier", "Basic", r"Queues\[0\].Properties.RequiresSession is True; allowed: none in the Basic"),
        (f"{NAMESPACE}.Throttling", 1, r"Namespaces\[0\].Throttling is 1; allowed: true, false"),
        (f"{NAMESPACE}.DeliverPings", "yes", r"Namespaces\[0\].DeliverPings is 'yes'; allowed: true, false"),
        (f"{NAMESPACE}.Queue", [], r"Namespaces\[0\].Queue is \[\]; allowed: only Name, Queues, Topics"),
        (f"{NAMESPACE}.Queues", {}, r"Namespaces\[0\].Queues is \{\}; allowed: a list"),
        (f"{NAMESPACE}.Queues.1", {}, r"Queues\[1\].Name is 'missing'; allowed: a value; it is required"),
        (f"{NAMESPACE}.Queues.1", {"Name": "ORDERS"}, r"Queues\[1\].Name is 'ORDERS'; allowed: each name once"),
        (f"{NAMESPACE}.Queues.1", {"Name": "Delays"}, r"Topics\[0\].Name is 'delays'; allowed: each name once"),
        (f"{QUEUE}.Name", "a//b", r"Queues\[0\].Name is 'a//b'; allowed: 1 to 260 characters"),
        (f"{QUEUE}.Properties.LockDuration", "60", r"Properties.LockDuration is '60'; allowed: an ISO 8601 duration"),
        (f"{QUEUE}.Properties.LockDuration", 60, r"Properties.LockDuration is 60; allowed: a string"),
        (f"{QUEUE}.Properties.LockDuration", "PT6M", r"Properties.LockDuration is 'PT6M'; allowed: .* PT5M"),
        (f"{QUEUE}.Properties.MaxDeliveryCount", 0, r"Properties.MaxDeliveryCount is 0; allowed: 1 .. 2147483647"),
        (f"{QUEUE}.Properties.MaxDeliveryCount", True, r"MaxDeliveryCount is True; allowed: a whole number"),
        (f"{QUEUE}.Properties.MaxDeliveryCount", 1.5, r"MaxDeliveryCount is 1.5; allowed: a whole number"),
        (f"{QUEUE}.Properties.RequiresSession", "true", r"RequiresSession is 'true'; allowed: true, false"),
        (f"{QUEUE}.Properties.Status", "On", r"Status is 'On'; allowed: Active, Disabled"),
        (f"{QUEUE}.Properties.ForwardTo", "a?b", r"Properties.ForwardTo is 'a\?b'; allowed: 1 to 260 characters"),
        (f"{QUEUE}.Properties.UserMetadata", "a\x01b", r"UserMetadata is 'a.*b'; allowed: .*characters that XML"),
        (f"{QUEUE}.Properties.UserMetadata", "\ud800", r"UserMetadata is .*; allowed: .*characters that XML"),
        (
            f"{QUEUE}.Properties.Lockduration",
            "PT1M",
            r"Properties.Lockduration is 'PT1M'; allowed: only .*LockDuration",
        ),
        (f"{QUEUE}.Properties.AuthorizationRules", [], r"AuthorizationRules is \[\]; allowed: only"),
        (f"{SUBSCRIPTION}.Name", "a/b", r"Topics\[0\].Subscriptions\[0\].Name is 'a/b'; allowed: 1 to 50"),
        (f"{SUBSCRIPTION}.Name", "ALL", r"Topics\[0\].Subscriptions\[1\].Name is 'all'; allowed: each name once"),
        (f"{SUBSCRIPTION}.Properties.MaxDeliveryCount", -1, r"Subscriptions\[0\].Properties.MaxDeliveryCount is -1"),
        (
            f"{SUBSCRIPTION}.Rules.1.Name",
            "BY-property",
            r"Subscriptions\[0\].Rules is .*; allowed: each rule name once",
        ),
        (f"{SUBSCRIPTION}.Rules.0.Name", "a/b", r"Rules\[0\].Name is 'a/b'; allowed: 1 to 50"),
        (
            f"{SUBSCRIPTION}.Rules.1.Properties.SqlFilter.SqlExpression",
            "minutes >",
            r"Rules\[1\].Properties.SqlFilter is 'minutes >'; allowed: a valid expression \(found the end at",
        ),
        (
            f"{SUBSCRIPTION}.Rules.1.Properties.Action.SqlExpression",
            "late = 1",
            r"Rules\[1\].Properties.Action is 'late = 1'; allowed: .*found 'late' at character 1; allowed: SET or",
        ),
        (f"{RULE}.FilterType", "Regex", r"Rules\[0\].Properties.FilterType is 'Regex'; allowed: Sql, Correlation"),
        (
            f"{RULE}.FilterType",
            "Sql",
            r"Properties.SqlFilter is 'missing'; allowed: a filter, because FilterType is Sql",
        ),
        (f"{RULE}.CorrelationFilter", {}, r"CorrelationFilter is \{\}; allowed: at least one of CorrelationId"),
        (f"{RULE}.CorrelationFilter.Subject", "x", r"CorrelationFilter.Subject is 'x'; allowed: only"),
        (f"{RULE}.CorrelationFilter.Properties", {"a": [1]}, r"Properties.a is \[1\]; allowed: a string, a number"),
    ],
)
def test_an_invalid_value_is_reported_with_its_path_and_range(path: str, value: Any, message: str):
    with pytest.raises(ConfigError, match=message):
        parse_config(changed(path, value))


def test_namespaces_have_different_names():
    twice = {"UserConfig": {"Namespaces": [{"Name": "a"}, {"Name": "A"}]}}

    with pytest.raises(ConfigError, match=r"UserConfig.Namespaces\[1\].Name is 'A'; allowed: each name once"):
        parse_config(json.dumps(twice))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1, column 1 is .*; allowed: a JSON document"),
        ('{"UserConfig": {\n "Namespaces": [,]}}', "line 2, column 17 is"),
        ("[]", r"the document is \[\]; allowed: an object"),
        ('{"UserConfig": NaN}', "a number is 'NaN'"),
        ('{"UserConfig": 1, "UserConfig": 2}', "member 'UserConfig' is 'given twice in one object'"),
    ],
)
def test_an_invalid_document_is_refused(text: str, message: str):
    with pytest.raises(ConfigError, match=message):
        parse_config(text)
