"""Shared access policies of a namespace and its entities."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from servicebus_emulator.engine.model.access_policy import ALL_RIGHTS, ROOT_POLICY
from servicebus_emulator.engine.model.descriptions import (
    AccessRight,
    AuthorizationRule,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.errors import EntityNotFound, InvalidArgument
from servicebus_emulator.engine.namespace.shared_access_policies import PolicyKey
from tests.emulator.support.engine import EngineHarness, PersistentNamespace

SEND = frozenset({AccessRight.SEND})
LISTEN = frozenset({AccessRight.LISTEN})


def test_a_new_namespace_has_the_root_policy_with_the_default_key(harness: EngineHarness):
    root = harness.namespace.access_policies.root
    assert (root.name, root.rights, root.keys) == (ROOT_POLICY, ALL_RIGHTS, ("SAS_KEY_VALUE", "SAS_KEY_VALUE"))


def test_manage_implies_send_and_listen(harness: EngineHarness):
    assert harness.namespace.access_policies.put("admin", rights=[AccessRight.MANAGE]).rights == ALL_RIGHTS


@pytest.mark.parametrize("path", [None, "q", "t"])
def test_policies_are_created_changed_and_deleted(harness: EngineHarness, path: str | None):
    harness.namespace.create_queue(QueueDescription("q"))
    harness.namespace.create_topic(TopicDescription("t"))
    policies = harness.namespace.access_policies
    created = policies.put("App", rights=SEND, path=path)
    assert policies.get("app", path=path) == created
    changed = policies.put("APP", rights=LISTEN, path=path)
    assert (changed.name, changed.rights, changed.keys) == ("App", LISTEN, created.keys)
    renewed = policies.regenerate("app", key=PolicyKey.SECONDARY, path=path)
    assert renewed.primary_key == created.primary_key
    assert renewed.secondary_key != created.secondary_key
    assert policies.regenerate("app", key=PolicyKey.PRIMARY, path=path, value="mine").primary_key == "mine"
    policies.delete("app", path=path)
    assert "App" not in [rule.name for rule in policies.list(path)]
    with pytest.raises(EntityNotFound):
        policies.get("app", path=path)


def test_a_subscription_uses_the_policies_of_its_topic(harness: EngineHarness):
    harness.namespace.create_topic(TopicDescription("a/t"))
    harness.namespace.create_subscription(SubscriptionDescription("a/t", "s"))
    policies = harness.namespace.access_policies
    rule = policies.put("app", rights=SEND, path="a/t")
    assert policies.find("A/T/Subscriptions/S") == (rule,)
    with pytest.raises(EntityNotFound, match="use those of 'a/t'"):
        policies.put("app", rights=SEND, path="a/t/Subscriptions/s")


def test_the_root_policy_cannot_be_deleted(harness: EngineHarness):
    with pytest.raises(InvalidArgument, match="regenerate its keys instead"):
        harness.namespace.access_policies.delete(ROOT_POLICY.lower())


@pytest.mark.parametrize("name", ["", "a/b", "a b", "-a", "a" * 257])
def test_an_invalid_policy_name_changes_nothing(harness: EngineHarness, name: str):
    with pytest.raises(DescriptionError, match=r"KeyName is .*allowed: 1 to 256"):
        harness.namespace.access_policies.put(name, rights=SEND)
    assert len(harness.namespace.access_policies.list()) == 1


def test_keys_are_neither_in_repr_nor_in_errors(harness: EngineHarness):
    rule = harness.namespace.access_policies.put("app", rights=SEND, primary_key="canary", secondary_key="canary")
    assert "canary" not in repr(rule)
    with pytest.raises(DescriptionError) as refused:
        harness.namespace.access_policies.put("app", rights=SEND, primary_key="canary" * 50)
    assert "canary" not in str(refused.value)


def test_a_thirteenth_policy_is_refused(harness: EngineHarness):
    for number in range(11):
        harness.namespace.access_policies.put(f"r{number}", rights=SEND)
    with pytest.raises(DescriptionError, match="12"):
        harness.namespace.access_policies.put("r11", rights=SEND)


def test_complete_fills_in_missing_keys_and_times(harness: EngineHarness):
    policies = harness.namespace.access_policies
    given = AuthorizationRule(key_name="app", rights=(AccessRight.SEND,), primary_key="mine")
    queue = policies.complete(QueueDescription("q", authorization_rules=(given,)))
    assert isinstance(queue, QueueDescription)
    harness.namespace.create_queue(queue)
    rule = policies.get("app", path="q")
    assert rule.primary_key == "mine"
    assert len(rule.secondary_key) == 44
    assert rule.created == datetime.fromtimestamp(harness.clock.now() / 1000, tz=UTC)
    harness.advance(10)
    assert policies.complete(queue) == queue


def test_a_rule_without_a_name_is_refused(harness: EngineHarness):
    rule = AuthorizationRule(rights=(AccessRight.SEND,))
    with pytest.raises(DescriptionError, match="KeyName is None"):
        harness.namespace.access_policies.complete(QueueDescription("q", authorization_rules=(rule,)))


def test_policies_survive_a_restart(persistent: PersistentNamespace):
    with persistent.open() as namespace:
        namespace.create_queue(QueueDescription("q"))
        policies = namespace.access_policies
        created = (policies.put("app", rights=SEND), policies.put("app", rights=LISTEN, path="q"))
        policies.put("deleted", rights=SEND)
        policies.delete("deleted")
        assert policies.set_initial_root_keys(("initial", "initial"))
        root = policies.regenerate(ROOT_POLICY, key=PolicyKey.PRIMARY)
    with persistent.open() as namespace:
        policies = namespace.access_policies
        assert (policies.get("app"), policies.get("app", path="q")) == created
        assert [policy.name for policy in policies.list()] == ["app", ROOT_POLICY]
        assert not policies.set_initial_root_keys(("other", "other"))
        assert policies.root == root
