"""SPEC section 3: the names and the description of backlog queues, and one plan for the dry run and the action."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from servicebus_pair.core.backlog import (
    BACKLOG_QUEUE,
    MAX_TIME_SPAN,
    BacklogPlan,
    QueueShape,
    backlog_prefix,
    backlog_queue,
    backlog_queues,
    plan_backlog,
)
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.results import Drift

ALL_THREE = ("contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1", "contoso/x-servicebus-transfer/2")


def existing(*paths: str, shape: QueueShape = BACKLOG_QUEUE) -> dict[str, QueueShape]:
    return dict.fromkeys(paths, shape)


def test_section_3_a_backlog_queue_is_named_by_the_primary_namespace_and_its_index() -> None:
    assert backlog_prefix("contoso") == "contoso/x-servicebus-transfer/"
    assert backlog_queue("contoso", 0) == "contoso/x-servicebus-transfer/0"
    assert backlog_queues("contoso", 3) == ALL_THREE


def test_section_3_a_backlog_queue_has_the_properties_of_the_specification_and_is_active() -> None:
    assert {field.name: getattr(BACKLOG_QUEUE, field.name) for field in fields(QueueShape)} == {
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
def test_section_3_what_is_no_name_of_a_namespace_is_refused_by_value(namespace: str) -> None:
    with pytest.raises(ConfigurationError, match="allowed are letters, digits and hyphens") as caught:
        backlog_prefix(namespace)
    assert repr(namespace) in str(caught.value)


def test_section_3_on_an_empty_namespace_everything_is_created_in_the_order_of_the_index() -> None:
    assert plan_backlog("contoso", 3, {}) == BacklogPlan(found=(), create=ALL_THREE, drifted=(), extra=())


def test_section_3_what_exists_is_found_and_only_what_is_missing_is_created() -> None:
    plan = plan_backlog("contoso", 3, existing(ALL_THREE[1]))
    assert (plan.found, plan.create) == ((ALL_THREE[1],), (ALL_THREE[0], ALL_THREE[2]))


def test_section_3_provisioning_again_plans_nothing() -> None:
    assert plan_backlog("contoso", 3, existing(*ALL_THREE)) == BacklogPlan(ALL_THREE, (), (), ())


def test_section_3_paths_are_compared_without_case() -> None:
    plan = plan_backlog("Contoso", 2, existing("contoso/X-ServiceBus-Transfer/0", "CONTOSO/x-servicebus-transfer/7"))
    assert plan.found == ("Contoso/x-servicebus-transfer/0",)
    assert plan.create == ("Contoso/x-servicebus-transfer/1",)
    assert plan.extra == ("CONTOSO/x-servicebus-transfer/7",)


def test_section_3_queues_with_an_index_from_the_count_on_are_extra_and_left_alone() -> None:
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
def test_section_3_other_queues_of_the_secondary_are_ignored(other: str) -> None:
    odd = replace(BACKLOG_QUEUE, max_size_in_megabytes=1)
    assert plan_backlog("contoso", 3, existing(other, shape=odd)) == plan_backlog("contoso", 3, {})


def test_section_3_a_different_description_is_reported_field_by_field_and_the_queue_is_used() -> None:
    drifted = replace(BACKLOG_QUEUE, max_delivery_count=10, enable_batched_operations=False)
    plan = plan_backlog("contoso", 1, existing(ALL_THREE[0].upper(), shape=drifted))
    assert plan.found == (ALL_THREE[0],)
    assert plan.create == ()
    assert plan.drifted == (
        Drift(ALL_THREE[0], "max_delivery_count", "2147483647", "10"),
        Drift(ALL_THREE[0], "enable_batched_operations", "True", "False"),
    )


def test_section_3_the_description_of_an_extra_queue_is_no_drift() -> None:
    odd = replace(BACKLOG_QUEUE, max_size_in_megabytes=1)
    assert plan_backlog("contoso", 1, {**existing(ALL_THREE[0]), **existing(ALL_THREE[2], shape=odd)}).drifted == ()


@settings(max_examples=100)
@given(count=st.integers(1, 12), indexes=st.sets(st.integers(0, 20)))
def test_section_3_after_the_plan_exactly_the_wanted_queues_are_usable(count: int, indexes: set[int]) -> None:
    paths = [backlog_queue("contoso", index) for index in indexes]
    plan = plan_backlog("contoso", count, existing(*paths))
    assert sorted(plan.found + plan.create) == sorted(backlog_queues("contoso", count))
    assert set(plan.found) | set(plan.extra) == set(paths)
    assert not set(plan.extra) & set(backlog_queues("contoso", count))
