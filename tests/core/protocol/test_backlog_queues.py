"""Names, settings and plan of backlog queues (SPEC section 3)."""

from __future__ import annotations

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.options import PairOptions
from servicebus_pair.core.model.results import Drift
from servicebus_pair.core.protocol.backlog_queues import (
    BACKLOG_QUEUE,
    MAX_TIME_SPAN,
    SESSION_QUEUE,
    BacklogPlan,
    QueueSettings,
    backlog_prefix,
    backlog_queue,
    backlog_queue_paths,
    backlog_session_id,
    cleanup_targets,
    entity_of_session,
    is_session_queue,
    plan_backlog,
    queues_in_use,
    session_prefix,
    session_queue_for,
    session_queue_paths,
    unusable_queues,
)
from tests.examples import examples

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
        "requires_session": False,
    }
    assert replace(SESSION_QUEUE, requires_session=False) == BACKLOG_QUEUE
    assert SESSION_QUEUE.requires_session


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


@examples(100)
@given(count=st.integers(1, 12), indexes=st.sets(st.integers(0, 20)))
def test_plan_covers_exactly_the_expected_queues(count: int, indexes: set[int]) -> None:
    paths = [backlog_queue("contoso", index) for index in indexes]
    plan = plan_backlog("contoso", count, existing(*paths))
    assert sorted(plan.found + plan.create) == sorted(backlog_queue_paths("contoso", count))
    assert set(plan.found) | set(plan.extra) == set(paths)
    assert not set(plan.extra) & set(backlog_queue_paths("contoso", count))


def test_session_queues_stand_beside_the_ordinary_ones() -> None:
    assert session_prefix("contoso") == "contoso/x-servicebus-transfer-sessions/"
    assert session_queue_paths("contoso", 2) == (
        "contoso/x-servicebus-transfer-sessions/0",
        "contoso/x-servicebus-transfer-sessions/1",
    )
    assert not session_queue_paths("contoso", 1)[0].startswith(backlog_prefix("contoso"))


@given(st.text(), st.text(), st.integers(1, 20))
def test_the_queue_is_a_function_of_entity_and_session(entity: str, session: str, count: int) -> None:
    queues = session_queue_paths("contoso", count)
    assert session_queue_for(entity, session, queues) == session_queue_for(entity.casefold(), session, queues)
    assert session_queue_for(entity, session, queues) in queues


def test_sessions_and_entities_spread_over_the_session_queues() -> None:
    queues = session_queue_paths("contoso", 3)
    assert {session_queue_for("flights", str(number), queues) for number in range(50)} == set(queues)
    assert {session_queue_for(str(number), "s", queues) for number in range(50)} == set(queues)


def test_the_session_id_is_the_entity_without_regard_to_case() -> None:
    assert backlog_session_id("Flights/JFK") == "flights/jfk"
    assert backlog_session_id("f" * 128) == "f" * 128
    assert entity_of_session(backlog_session_id("Flights/JFK")) == "flights/jfk"
    assert entity_of_session(backlog_session_id("f" * 200)) is None


def test_a_long_path_is_shortened_to_a_session_id_of_its_own() -> None:
    ids = {backlog_session_id("f" * 200 + end) for end in ("a", "b")}
    assert len(ids) == 2
    assert all(len(each) == 128 and each.startswith("f" * 63) for each in ids)


SESSIONS = session_queue_paths("contoso", 2)


def test_section_6_session_queues_are_in_use_with_session_order_only() -> None:
    def in_use(ordering: str) -> tuple[str, ...]:
        return queues_in_use("contoso", PairOptions(backlog_queue_count=2, ordering=ordering))

    assert in_use("none") == ALL_THREE[:2]
    assert in_use("session") == (*ALL_THREE[:2], *SESSIONS)
    assert [is_session_queue("contoso", path.upper()) for path in in_use("session")] == [False, False, True, True]


def test_section_6_session_queues_are_planned_beside_the_ordinary_ones() -> None:
    plan = plan_backlog("contoso", 2, existing(ALL_THREE[0]), ordered=True)
    assert plan == BacklogPlan(ALL_THREE[:1], (ALL_THREE[1], *SESSIONS), (), ())
    made = existing(*ALL_THREE[:2]) | existing(*SESSIONS, shape=SESSION_QUEUE)
    assert plan_backlog("contoso", 2, made, ordered=True) == BacklogPlan((*ALL_THREE[:2], *SESSIONS), (), (), ())


def test_section_3_session_queues_are_extra_beyond_the_count_and_without_session_order() -> None:
    made = existing(*ALL_THREE[:2]) | existing(*SESSIONS, "contoso/x-servicebus-transfer-sessions/notes")
    assert plan_backlog("contoso", 2, made).extra == SESSIONS
    assert plan_backlog("contoso", 1, made, ordered=True).extra == (SESSIONS[1], ALL_THREE[1])
    assert cleanup_targets("contoso", 2, made, everything=False) == SESSIONS
    assert cleanup_targets("contoso", 1, made, everything=False, ordered=True) == (SESSIONS[1], ALL_THREE[1])
    assert cleanup_targets("contoso", 2, made, everything=False, ordered=True) == ()
    everything = cleanup_targets("contoso", 2, made, everything=True, ordered=True)
    assert sorted(everything) == sorted((*ALL_THREE[:2], *SESSIONS))


def test_section_6_a_queue_of_the_wrong_kind_is_drift_and_unusable() -> None:
    made = existing(ALL_THREE[0], shape=SESSION_QUEUE) | existing(SESSIONS[0])
    plan = plan_backlog("contoso", 1, made, ordered=True)
    assert plan.drifted == (
        Drift(ALL_THREE[0], "requires_session", "False", "True"),
        Drift(SESSIONS[0], "requires_session", "True", "False"),
    )
    reasons = unusable_queues(plan)
    assert list(reasons) == [ALL_THREE[0], SESSIONS[0]]
    assert "RequiresSession is False, must be True and cannot be changed" in reasons[SESSIONS[0]]
    assert "delete it and provision again" in reasons[SESSIONS[0]]
    odd = existing(ALL_THREE[0], shape=replace(BACKLOG_QUEUE, max_delivery_count=1))
    assert unusable_queues(plan_backlog("contoso", 1, odd)) == {}
