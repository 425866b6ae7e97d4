"""Shared access rules of a namespace and its entities, without any wire."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from servicebus_emulator.engine.access import Key
from servicebus_emulator.engine.access_rules import ALL_RIGHTS, ROOT_RULE
from servicebus_emulator.engine.descriptions import (
    AccessRight,
    AuthorizationRule,
    DescriptionError,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.errors import EntityNotFound, InvalidArgument
from servicebus_emulator.engine.namespace import Namespace
from servicebus_emulator.store.sqlite import SqliteJournal
from tests.emulator.broker import Bench

SEND = frozenset({AccessRight.SEND})
LISTEN = frozenset({AccessRight.LISTEN})


def test_a_namespace_begins_with_the_root_rule_and_the_well_known_key(bench: Bench):
    root = bench.namespace.access_rules.root
    assert (root.name, root.rights, root.keys) == (ROOT_RULE, ALL_RIGHTS, ("SAS_KEY_VALUE", "SAS_KEY_VALUE"))


def test_manage_brings_send_and_listen(bench: Bench):
    assert bench.namespace.access_rules.put("boss", rights=[AccessRight.MANAGE]).rights == ALL_RIGHTS


@pytest.mark.parametrize("path", [None, "q", "t"])
def test_a_rule_is_made_found_changed_and_deleted(bench: Bench, path: str | None):
    bench.namespace.create_queue(QueueDescription("q"))
    bench.namespace.create_topic(TopicDescription("t"))
    rules = bench.namespace.access_rules
    made = rules.put("App", rights=SEND, path=path)
    assert rules.get("app", path=path) == made
    changed = rules.put("APP", rights=LISTEN, path=path)
    assert (changed.name, changed.rights, changed.keys) == ("App", LISTEN, made.keys)
    renewed = rules.regenerate("app", key=Key.SECONDARY, path=path)
    assert renewed.primary_key == made.primary_key
    assert renewed.secondary_key != made.secondary_key
    assert rules.regenerate("app", key=Key.PRIMARY, path=path, value="mine").primary_key == "mine"
    rules.delete("app", path=path)
    assert "App" not in [rule.name for rule in rules.list(path)]
    with pytest.raises(EntityNotFound):
        rules.get("app", path=path)


def test_a_subscription_goes_by_the_rules_of_its_topic(bench: Bench):
    bench.namespace.create_topic(TopicDescription("a/t"))
    bench.namespace.create_subscription(SubscriptionDescription("a/t", "s"))
    rules = bench.namespace.access_rules
    rule = rules.put("app", rights=SEND, path="a/t")
    assert rules.find("A/T/Subscriptions/S") == (rule,)
    with pytest.raises(EntityNotFound, match="its rules are those of 'a/t'"):
        rules.put("app", rights=SEND, path="a/t/Subscriptions/s")


def test_the_root_rule_cannot_be_deleted(bench: Bench):
    with pytest.raises(InvalidArgument, match="regenerate its keys instead"):
        bench.namespace.access_rules.delete(ROOT_RULE.lower())


@pytest.mark.parametrize("name", ["", "a/b", "a b", "-a", "a" * 257])
def test_a_name_that_no_rule_can_have_is_refused_before_anything_changes(bench: Bench, name: str):
    with pytest.raises(DescriptionError, match=r"KeyName is .*allowed: 1 to 256"):
        bench.namespace.access_rules.put(name, rights=SEND)
    assert len(bench.namespace.access_rules.list()) == 1


def test_no_key_is_in_the_repr_of_a_rule_or_in_what_is_refused(bench: Bench):
    rule = bench.namespace.access_rules.put("app", rights=SEND, primary_key="canary", secondary_key="canary")
    assert "canary" not in repr(rule)
    with pytest.raises(DescriptionError) as refused:
        bench.namespace.access_rules.put("app", rights=SEND, primary_key="canary" * 50)
    assert "canary" not in str(refused.value)


def test_a_thirteenth_rule_is_refused(bench: Bench):
    for number in range(11):
        bench.namespace.access_rules.put(f"r{number}", rights=SEND)
    with pytest.raises(DescriptionError, match="12"):
        bench.namespace.access_rules.put("r11", rights=SEND)


def test_what_an_entitys_rule_leaves_out_is_made(bench: Bench):
    rules = bench.namespace.access_rules
    given = AuthorizationRule(key_name="app", rights=(AccessRight.SEND,), primary_key="mine")
    queue = rules.completed(QueueDescription("q", authorization_rules=(given,)))
    bench.namespace.create_queue(queue)
    rule = rules.get("app", path="q")
    assert rule.primary_key == "mine"
    assert len(rule.secondary_key) == 44
    assert rule.created == datetime.fromtimestamp(bench.clock.now() / 1000, tz=UTC)
    bench.go_on(10)
    assert rules.completed(queue) == queue


def test_a_rule_without_a_name_is_refused(bench: Bench):
    rule = AuthorizationRule(rights=(AccessRight.SEND,))
    with pytest.raises(DescriptionError, match="KeyName is None"):
        bench.namespace.access_rules.completed(QueueDescription("q", authorization_rules=(rule,)))


def test_rules_survive_a_restart(tmp_path: Path):
    path = tmp_path / "contoso.sqlite"
    journal = SqliteJournal(path)
    first = Namespace("contoso", journal=journal, snapshot=journal.snapshot()).access_rules
    first._directory.create_queue(QueueDescription("q"))  # type: ignore[attr-defined]
    kept = (first.put("app", rights=SEND), first.put("app", rights=LISTEN, path="q"))
    first.put("gone", rights=SEND)
    first.delete("gone")
    assert first.start_with(("given", "given"))
    root = first.regenerate(ROOT_RULE, key=Key.PRIMARY)
    journal.close()

    journal = SqliteJournal(path)
    second = Namespace("contoso", journal=journal, snapshot=journal.snapshot()).access_rules
    assert (second.get("app"), second.get("app", path="q")) == kept
    assert [rule.name for rule in second.list()] == ["app", ROOT_RULE]
    assert not second.start_with(("another", "another"))
    assert second.root == root
    journal.close()
