"""EMULATOR 3: which fault strikes which operation, deterministically for a seed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator.faults import (
    Armed,
    Fault,
    FaultError,
    FaultKind,
    Operation,
    Pace,
    holding,
    pace_of,
    refusal_of,
    strike,
)
from servicebus_emulator.faults.codec import armed_document, fault_from_json, fault_from_text, load_faults

NOW = 1_700_000_000_000
BUSY = Fault(kind=FaultKind.SERVER_BUSY)


def armed(fault: Fault, *, number: int = 1, until: int | None = None, seed: int = 0) -> Armed:
    return Armed(id=str(number), fault=fault, until=until, seed=seed)


def strikes(faults: tuple[Armed, ...], entities: list[str], *, now: int = NOW) -> list[str | None]:
    """The id of the fault that strikes each send, one after another."""
    struck = []
    for entity in entities:
        one, faults = strike(faults, operation=Operation.SEND, entity=entity, now=now)
        struck.append(None if one is None else one.id)
    return struck


paths = st.sampled_from(["flights", "Flights/late", "briefings", "delays/Subscriptions/all"])


@given(st.lists(paths, max_size=30), st.floats(0.05, 1), st.integers(1, 5), st.integers(0, 1000))
def test_the_same_seed_and_operations_give_the_same_strikes(
    entities: list[str], probability: float, count: int, seed: int
):
    faults = tuple(
        armed(Fault(kind=kind, probability=probability, count=count), number=number, seed=seed)
        for number, kind in enumerate((FaultKind.SERVER_BUSY, FaultKind.RELEASED))
    )
    assert strikes(faults, entities) == strikes(faults, entities)


@given(st.lists(paths, max_size=30), st.integers(1, 20))
def test_only_matching_operations_use_up_a_count(entities: list[str], count: int):
    faults = (armed(Fault(kind=FaultKind.SERVER_BUSY, entity="flights*", count=count)),)
    matching = [entity.casefold().startswith("flights") for entity in entities]
    struck = [each is not None for each in strikes(faults, entities)]
    assert sum(struck) == min(count, sum(matching))
    assert all(match for match, hit in zip(matching, struck, strict=True) if hit)


@given(st.integers(0, 10_000), st.integers(-5000, 5000))
def test_a_fault_ends_exactly_on_time(until: int, offset: int):
    faults = (armed(BUSY, until=NOW + until),)
    now = NOW + until + offset
    assert len(holding(faults, now=now)) == (1 if offset < 0 else 0)
    assert strikes(faults, ["flights"], now=now) == (["1"] if offset < 0 else [None])


@given(st.integers(0, 50))
def test_a_probability_is_met_approximately(seed: int):
    faults = (armed(Fault(kind=FaultKind.SERVER_BUSY, probability=0.3), seed=seed),)
    struck = sum(each is not None for each in strikes(faults, ["flights"] * 400))
    assert 60 < struck < 180


def test_the_random_numbers_of_a_fault_are_independent_of_others():
    half = armed(Fault(kind=FaultKind.SERVER_BUSY, entity="flights", probability=0.5), number=7)
    other = armed(Fault(kind=FaultKind.RELEASED, entity="briefings", probability=0.5), number=8)
    alone = strikes((half,), ["flights"] * 50)
    mixed = strikes((other, half), ["flights", "briefings"] * 50)[::2]
    assert alone == mixed


def test_of_several_faults_the_first_that_is_not_used_up_strikes():
    faults = (armed(replace(BUSY, count=2), number=1), armed(Fault(kind=FaultKind.RELEASED), number=2))
    assert strikes(faults, ["flights"] * 4) == ["1", "1", "2", "2"]


def test_a_fault_strikes_its_operations_only():
    faults = (armed(Fault(kind=FaultKind.RESET, on=(Operation.SETTLE,))),)
    assert strike(faults, operation=Operation.SEND, entity="flights", now=NOW)[0] is None
    assert strike(faults, operation=Operation.SETTLE, entity="flights", now=NOW)[0] is not None


def test_delays_add_up_and_the_narrowest_bandwidth_counts():
    faults = (
        armed(Fault(kind=FaultKind.LATENCY, delay=0.25)),
        armed(Fault(kind=FaultKind.LATENCY, delay=0.5)),
        armed(Fault(kind=FaultKind.BANDWIDTH, bytes_per_second=1000)),
        armed(Fault(kind=FaultKind.BANDWIDTH, bytes_per_second=200)),
    )
    assert pace_of(faults, now=NOW) == Pace(delay=0.75, bytes_per_second=200)
    assert pace_of((armed(BUSY),), now=NOW) is None


def test_every_kind_survives_a_round_trip():
    extra: dict[FaultKind, dict[str, Any]] = {
        FaultKind.LATENCY: {"delay": 0.1},
        FaultKind.LATE_DISPOSITION: {"delay": 0.1},
        FaultKind.BANDWIDTH: {"bytes_per_second": 10},
    }
    for kind in FaultKind:
        fault = Fault(kind=kind, namespace="contoso", duration=5, **extra.get(kind, {}))
        document = armed_document(armed(fault))
        for name in ("id", "strikes", "until"):
            del document[name]
        assert fault_from_json(document) == replace(fault, on=fault.operations)


def test_a_fault_of_the_command_line_names_its_kind_and_fields():
    assert fault_from_text("reset,on=send+settle,entity=flights/*,probability=0.5,count=3,duration=1.5") == Fault(
        kind=FaultKind.RESET,
        on=(Operation.SEND, Operation.SETTLE),
        entity="flights/*",
        probability=0.5,
        count=3,
        duration=1.5,
    )


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the fault is []; allowed: a JSON object"),
        ({}, "kind is None; allowed: refuse, reset"),
        ({"kind": "reste"}, "kind is 'reste'; allowed: refuse, reset"),
        ({"kind": "reset", "when": 1}, "the member is 'when'; allowed: kind, on"),
        ({"kind": "reset", "on": "sendd"}, "on is 'sendd'; allowed: connect"),
        ({"kind": "reset", "on": 5}, "on is 5; allowed: one or a list of"),
        ({"kind": "released", "on": "settle"}, "on is 'settle'; allowed: for released: send"),
        ({"kind": "reset", "probability": 0}, "probability is 0; allowed: above 0, up to 1"),
        ({"kind": "reset", "probability": 1.5}, "probability is 1.5; allowed"),
        ({"kind": "reset", "probability": float("nan")}, "probability is nan; allowed"),
        ({"kind": "reset", "count": 0}, "count is 0; allowed: above 0"),
        ({"kind": "reset", "count": 1.5}, "count is 1.5; allowed: a whole number"),
        ({"kind": "reset", "count": True}, "count is True; allowed: a whole number"),
        ({"kind": "reset", "duration": -1}, "duration is -1; allowed: above 0"),
        ({"kind": "reset", "duration": "1"}, "duration is '1'; allowed: a number"),
        ({"kind": "reset", "entity": ""}, "entity is ''; allowed: a path"),
        ({"kind": "reset", "delay": 1}, "delay is 1; allowed: for late-disposition, latency only, not for reset"),
        ({"kind": "latency"}, "delay is None; allowed: a number above 0, which latency needs"),
        ({"kind": "bandwidth"}, "bytes_per_second is None"),
        ({"kind": "auth-failure", "status": 200}, "status is 200; allowed: 400 .. 599"),
        ({"kind": "close-link", "condition": ""}, "condition is ''; allowed: an AMQP condition"),
        ({"kind": "refuse", "count": 1}, "count is 1; allowed: none, as refuse on connect holds"),
        ({"kind": "freeze", "probability": 0.5}, "probability is 0.5; allowed: 1.0, as freeze"),
        ({"kind": "freeze", "entity": "flights"}, "entity is 'flights'; allowed: none, as freeze on anything"),
    ],
)
def test_an_invalid_fault_is_refused_with_field_and_allowed_values(document: object, message: str):
    with pytest.raises(FaultError) as caught:
        fault_from_json(document)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("text", ["", "reset,count", "reset,count=1,count=2", "reset,kind=freeze", "reset,count=x"])
def test_an_invalid_fault_of_the_command_line_is_refused(text: str):
    with pytest.raises(FaultError, match="allowed"):
        fault_from_text(text)


def test_a_file_of_faults_keeps_its_order_and_errors_name_their_place(tmp_path: Any):
    path = tmp_path / "faults.json"
    path.write_text('[{"kind": "reset"}, {"kind": "server-busy", "count": 2}]')
    assert load_faults(path) == (Fault(kind=FaultKind.RESET), Fault(kind=FaultKind.SERVER_BUSY, count=2))
    path.write_text('[{"kind": "reset"}, {"kind": "server-busy", "count": -2}]')
    with pytest.raises(FaultError, match=r"^\[1\]\.count is -2; allowed: above 0"):
        load_faults(path)
    for text in ('{"kind": "reset"}', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(FaultError, match="a JSON list of faults"):
            load_faults(path)
    with pytest.raises(FaultError, match="not a regular file"):
        load_faults(Path("/dev/zero"))


def test_a_chosen_condition_and_status_reach_the_refusal():
    closed = refusal_of(Fault(kind=FaultKind.CLOSE_LINK, condition="amqp:resource-deleted"))
    denied = refusal_of(Fault(kind=FaultKind.AUTH_FAILURE, status=503))
    assert (closed.condition, denied.status) == ("amqp:resource-deleted", 503)
    assert refusal_of(Fault(kind=FaultKind.RESET)) is None
