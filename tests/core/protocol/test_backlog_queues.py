"""Names, settings and plan of backlog queues (SPEC section 3)."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.results import Drift
from servicebus_pair.core.protocol.backlog_queues import (
    BACKLOG_QUEUE,
    MAX_TIME_SPAN,
    BacklogPlan,
    QueueSettings,
    backlog_prefix,
    backlog_queue,
    backlog_queue_paths,
    plan_backlog,
)

ALL_THREE = ("contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1", "contoso/x-servicebus-transfer/2")


def existing(*paths: str, shape: QueueSettings = BACKLOG_QUEUE) -> dict[str, QueueSettings]:
    return dict.fromkeys(paths, shape)


def test_queue_name_contains_namespace_and_index() -> None:
    assert backlog_prefix("contoso") == "contoso/x-servicebus-transfer/"
    assert backlog_queue("contoso", 0) == "contoso/x-servicebus-transfer/0"
    assert backlog_queue_paths("contoso", 3) == ALL_THREE


def test_backlog_queue_settings() -> None:
    assert {field.name: getattr(BACKLOG_QUEUE, field.name) for field in fields(QueueSettings)} == {
        "status": "Active",
        "max_size_in_megabytes": 5120,
        "max_delivery_count": 2_147_483_647,
        "default_message_time_to_live": "P10675199DT2H48M5.4775807S",
        "auto_delete_on_idle": MAX_TIME_SPAN,
        "lock_duration": "PT1M",
        "dead_lettering_on_message_expiration": True,
        "enable_batched_operations": True,
    }


@pytest.mark.parametrize("namespace", ["", "con toso", "contoso.servicebus.windows.net", "a/b", "-a", "contoso\n"])
def test_invalid_namespace_name_is_rejected(namespace: str) -> None:
    with pytest.raises(ConfigurationError, match="allowed are letters, digits and hyphens") as caught:
        backlog_prefix(namespace)
    assert repr(namespace) in str(caught.value)


@pytest.mark.parametrize(
    ("present", "missing"),
    [((), ALL_THREE), (ALL_THREE[1:2], (ALL_THREE[0], ALL_THREE[2])), (ALL_THREE, ())],
    ids=["none exists", "one exists", "all exist"],
)
def test_plan_creates_only_missing_queues_in_index_order(present: tuple[str, ...], missing: tuple[str, ...]) -> None:
    assert plan_backlog("contoso", 3, existing(*present)) == BacklogPlan(present, missing, (), ())


def test_paths_are_compared_case_insensitively() -> None:
    plan = plan_backlog("Contoso", 2, existing("contoso/X-ServiceBus-Transfer/0", "CONTOSO/x-servicebus-transfer/7"))
    assert plan.found == ("Contoso/x-servicebus-transfer/0",)
    assert plan.create == ("Contoso/x-servicebus-transfer/1",)
    assert plan.extra == ("CONTOSO/x-servicebus-transfer/7",)


def test_queues_beyond_the_count_are_extra() -> None:
    plan = plan_backlog("contoso", 2, existing(*ALL_THREE, "contoso/x-servicebus-transfer/11"))
    assert plan.extra == ("contoso/x-servicebus-transfer/11", ALL_THREE[2])
    assert plan.create == ()


@pytest.mark.parametrize(
    "other",
    [
        "orders",
        "contoso",
        "contoso/x-servicebus-transfer",
        "contoso/x-servicebus-transfer/",
        "contoso/x-servicebus-transfer/a",
        "contoso/x-servicebus-transfer/0/deeper",
        "contoso/x-servicebus-transfer/-1",
        "contoso/x-servicebus-transfer/07",
        "contoso/x-servicebus-transfer/\u0665",
        "contoso-dr/x-servicebus-transfer/5",
        "mycontoso/x-servicebus-transfer/5",
    ],
)
def test_other_queues_are_ignored(other: str) -> None:
    odd = replace(BACKLOG_QUEUE, max_size_in_megabytes=1)
    assert plan_backlog("contoso", 3, existing(other, shape=odd)) == plan_backlog("contoso", 3, {})


def test_drift_is_reported_per_field_and_the_queue_is_used() -> None:
    drifted = replace(BACKLOG_QUEUE, max_delivery_count=10, enable_batched_operations=False)
    plan = plan_backlog("contoso", 1, existing(ALL_THREE[0].upper(), shape=drifted))
    assert plan.found == (ALL_THREE[0],)
    assert plan.create == ()
    assert plan.drifted == (
        Drift(ALL_THREE[0], "max_delivery_count", "2147483647", "10"),
        Drift(ALL_THREE[0], "enable_batched_operations", "True", "False"),
    )


def test_extra_queue_has_no_drift() -> None:
    odd = replace(BACKLOG_QUEUE, max_size_in_megabytes=1)
    assert plan_backlog("contoso", 1, {**existing(ALL_THREE[0]), **existing(ALL_THREE[2], shape=odd)}).drifted == ()


@settings(max_examples=100)
@given(count=st.integers(1, 12), indexes=st.sets(st.integers(0, 20)))
def test_plan_covers_exactly_the_expected_queues(count: int, indexes: set[int]) -> None:
    paths = [backlog_queue("contoso", index) for index in indexes]
    plan = plan_backlog("contoso", count, existing(*paths))
    assert sorted(plan.found + plan.create) == sorted(backlog_queue_paths("contoso", count))
    assert set(plan.found) | set(plan.extra) == set(paths)
    assert not set(plan.extra) & set(backlog_queue_paths("contoso", count))
