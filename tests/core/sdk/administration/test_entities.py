"""Entities are created, changed and deleted through the namespace's own administration."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from azure.servicebus.management import CorrelationRuleFilter, SqlRuleAction, SqlRuleFilter

from servicebus_emulator import Emulator
from servicebus_pair.core.model.errors import ConfigurationError, EntityNotFoundError
from servicebus_pair.core.sdk.administration.entities import EntityAdministration, EntityName
from tests.core.support.local_pair import endpoint

QUEUE, TOPIC = EntityName("queue", ("flights",)), EntityName("topic", ("delays",))
LATE, RULE = EntityName("subscription", ("delays", "late")), EntityName("rule", ("delays", "late", "far"))


@asynccontextmanager
async def administration() -> AsyncIterator[EntityAdministration]:
    async with Emulator(["contoso"]) as emulator, EntityAdministration(endpoint(emulator["contoso"])) as managing:
        yield managing


async def described(managing: EntityAdministration, name: EntityName) -> Any:
    return await getattr(managing._client, f"get_{name.kind}")(*name.parts)


@pytest.mark.parametrize(
    ("path", "kind", "parts", "text"),
    [
        ("flights", "queue", ("flights",), "queue flights"),
        ("a/b", "topic", ("a/b",), "topic a/b"),
        ("a/b/Subscriptions/c", "subscription", ("a/b", "c"), "subscription a/b/c"),
        ("a/subscriptions/c/rules/d", "rule", ("a", "c", "d"), "rule a/c/d"),
        ("a/Subscriptions/c/Others/d", "queue", ("a/Subscriptions/c/Others/d",), "queue a/Subscriptions/c/Others/d"),
    ],
)
def test_a_path_names_an_entity(path: str, kind: str, parts: tuple[str, ...], text: str) -> None:
    name = EntityName.parse(path, kind="topic" if kind == "topic" else "queue")
    assert (name, str(name)) == (EntityName(kind, parts), text)


async def test_entities_are_created_once_changed_and_deleted_once() -> None:
    settings: dict[EntityName, dict[str, Any]] = {
        QUEUE: {"max_delivery_count": 3},
        TOPIC: {"max_size_in_megabytes": 2048},
        LATE: {"max_delivery_count": 4},
        RULE: {"sql": "minutes > 60", "action": "SET far = 1"},
    }
    async with administration() as managing:
        for name, given in settings.items():
            assert await managing.create(name, given)
            assert not await managing.create(name, given)
        await managing.update(QUEUE, {"lock_duration": timedelta(seconds=30)})
        await managing.update(LATE, {"max_delivery_count": 5})
        queue, late = await described(managing, QUEUE), await described(managing, LATE)
        assert (queue.lock_duration, queue.max_delivery_count) == (timedelta(seconds=30), 3)
        assert late.max_delivery_count == 5
        assert (await described(managing, TOPIC)).max_size_in_megabytes == 2048
        rule = await described(managing, RULE)
        assert (type(rule.filter), rule.filter.sql_expression) == (SqlRuleFilter, "minutes > 60")
        assert (type(rule.action), rule.action.sql_expression) == (SqlRuleAction, "SET far = 1")
        await managing.update(RULE, {"correlation": {"label": "UA"}})
        changed = (await described(managing, RULE)).filter
        assert (type(changed), changed.label) == (CorrelationRuleFilter, "UA")
        for name in (RULE, LATE, TOPIC, QUEUE):
            assert await managing.delete(name)
            assert not await managing.delete(name)
        with pytest.raises(EntityNotFoundError, match="read queue flights on contoso"):
            await managing.update(QUEUE, {"max_delivery_count": 3})


@pytest.mark.parametrize("days", [3, 1000])
async def test_a_limited_time_to_live_stays_when_something_else_changes_and_an_unlimited_one_is_left_out(
    days: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with administration() as managing:
        await managing.create(QUEUE, {"default_message_time_to_live": timedelta(days=days)})
        update, sent = managing._client.update_queue, list[Any]()

        async def noted(queue: Any) -> None:
            sent.append((queue.default_message_time_to_live, queue.auto_delete_on_idle))
            await update(queue)

        monkeypatch.setattr(managing._client, "update_queue", noted)
        await managing.update(QUEUE, {"max_delivery_count": 7})
        assert sent == [(timedelta(days=days), None)]
        queue = await described(managing, QUEUE)
        assert (queue.default_message_time_to_live, queue.max_delivery_count) == (timedelta(days=days), 7)
        assert queue.auto_delete_on_idle > timedelta(days=10_000_000)


@pytest.mark.parametrize(
    ("name", "settings", "text"),
    [
        (
            QUEUE,
            {"max_deliveries": 3, "lock": 1},
            "settings has lock, max_deliveries: a queue has .*max_delivery_count",
        ),
        (RULE, {"filter": "x"}, "settings has filter: a rule has action, correlation, sql"),
        (RULE, {"sql": "1=1", "correlation": {}}, "settings have sql and correlation: a rule has one filter"),
    ],
)
async def test_unknown_settings_are_refused_before_anything_is_asked(
    name: EntityName, settings: dict[str, Any], text: str
) -> None:
    async with administration() as managing:
        for call in (managing.create, managing.update):
            with pytest.raises(ConfigurationError, match=text):
                await call(name, settings)
