"""Reconciliation of ledger records with the messages found in queues (SPEC section 9)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.ledger.incidents import Incident
from servicebus_pair.core.ledger.reconcile import (
    Found,
    History,
    Location,
    Outcome,
    Sent,
    Syphoned,
    Verdict,
    classify,
)
from servicebus_pair.core.ledger.totals import Totals
from servicebus_pair.core.model.events import Route

QUEUE = "flights"
BACKLOG = "contoso/x-servicebus-transfer/3"
DIRECT = Sent(Route.PRIMARY, 100.0, run="r")
DIVERTED = Sent(Route.BACKLOG, 100.0, BACKLOG, "r")
MOVED = Syphoned(130.0, BACKLOG)
SPOOLED, ELSEWHERE = (Sent(Route.SPOOLED, 100.0, run="r", spool=spool) for spool in ("here", "there"))
TO_PRIMARY = Syphoned(110.0, route=Route.PRIMARY, spool="here")
TO_BACKLOG, OF_OTHER = (Syphoned(110.0, BACKLOG, route=Route.BACKLOG, spool=spool) for spool in ("here", "there"))
HERE = Found(QUEUE, Location.ACTIVE)
IN_SPOOL = Found("spool", Location.SPOOL)


routes = st.sampled_from(Route)
sends = st.lists(st.builds(Sent, routes, st.floats(0, 1e6)), max_size=3).map(tuple)
moves = st.lists(st.builds(Syphoned, st.floats(0, 1e6)), max_size=3).map(tuple)
copies = st.lists(st.builds(Found, st.just(QUEUE), st.sampled_from(Location), st.integers(1, 3)), max_size=3).map(tuple)
histories = st.builds(History, st.uuids().map(str), st.just(QUEUE), sends, moves, copies)


def verdict_on(
    *found: Found,
    sent: tuple[Sent, ...] = (DIRECT,),
    syphoned: tuple[Syphoned, ...] = (),
    receiving: tuple[str, ...] = (QUEUE,),
) -> Verdict:
    return classify(History("m-1", QUEUE, sent, syphoned, found), receiving_entities=receiving)


@pytest.mark.parametrize(
    ("sent", "syphoned", "found", "outcome"),
    [
        ((DIRECT,), (), (HERE,), Outcome.DELIVERED),
        ((DIRECT,), (), (Found(QUEUE, Location.SCHEDULED),), Outcome.DELIVERED),
        ((DIRECT,), (), (Found(QUEUE, Location.DEFERRED),), Outcome.DELIVERED),
        ((DIVERTED,), (), (), Outcome.LOST),
        ((Sent(Route.SPOOLED, 100.0),), (), (), Outcome.SPOOLED),
        # What a consumer took, or what expired, is not lost: the primary had accepted it.
        ((DIRECT,), (), (), Outcome.CONSUMED),
        ((), (MOVED,), (), Outcome.CONSUMED),
        ((DIVERTED,), (), (Found("", Location.RECEIPT),), Outcome.CONSUMED),
        ((DIVERTED,), (), (Found(BACKLOG, Location.BACKLOG),), Outcome.WAITING),
        ((DIVERTED,), (), (Found(QUEUE, Location.DEAD_LETTER),), Outcome.DEAD_LETTERED),
        ((DIVERTED,), (), (Found(BACKLOG, Location.BACKLOG_DEAD_LETTER),), Outcome.DEAD_LETTERED),
        ((), (), (HERE,), Outcome.UNRECORDED),
    ],
)
def test_outcome_follows_from_records_and_copies(
    sent: tuple[Sent, ...], syphoned: tuple[Syphoned, ...], found: tuple[Found, ...], outcome: Outcome
):
    verdict = verdict_on(*found, sent=sent, syphoned=syphoned)
    assert (verdict.outcome, verdict.duplicates, verdict.wait_seconds) == (outcome, 0, None)
    assert verdict.route == (sent[0].route if sent else Route.BACKLOG if syphoned else None)


@pytest.mark.parametrize(
    ("sent", "syphoned", "found", "outcome", "unexamined"),
    [
        ((SPOOLED,), (), (IN_SPOOL,), Outcome.SPOOLED, Outcome.SPOOLED),
        ((SPOOLED,), (), (), Outcome.LOST, Outcome.SPOOLED),
        ((SPOOLED,), (), (HERE,), Outcome.DELIVERED, Outcome.DELIVERED),
        ((SPOOLED,), (TO_PRIMARY,), (), Outcome.CONSUMED, Outcome.CONSUMED),
        ((SPOOLED,), (TO_BACKLOG,), (), Outcome.LOST, Outcome.LOST),
        ((SPOOLED,), (TO_BACKLOG,), (Found(BACKLOG, Location.BACKLOG),), Outcome.WAITING, Outcome.WAITING),
        ((SPOOLED,), (TO_BACKLOG, MOVED), (), Outcome.CONSUMED, Outcome.CONSUMED),
        # That of another machine cannot be seen, whatever this one holds; nor can one that the record does not name.
        ((ELSEWHERE,), (), (), Outcome.SPOOLED, Outcome.SPOOLED),
        ((replace(SPOOLED, spool=None),), (), (), Outcome.SPOOLED, Outcome.SPOOLED),
        ((ELSEWHERE,), (OF_OTHER,), (), Outcome.LOST, Outcome.LOST),
        ((SPOOLED, ELSEWHERE), (TO_BACKLOG,), (), Outcome.SPOOLED, Outcome.SPOOLED),
        ((SPOOLED, ELSEWHERE), (OF_OTHER,), (), Outcome.LOST, Outcome.SPOOLED),
    ],
)
def test_a_spooled_message_is_lost_only_if_its_spool_was_examined_or_it_left_it(
    sent: tuple[Sent, ...],
    syphoned: tuple[Syphoned, ...],
    found: tuple[Found, ...],
    outcome: Outcome,
    unexamined: Outcome,
):
    history = History("m-1", QUEUE, sent, syphoned, found)
    verdicts = [classify(history, receiving_entities=(QUEUE,), examined_spools=each) for each in (["here"], [])]
    assert [each.outcome for each in verdicts] == [outcome, unexamined]
    assert {each.route for each in verdicts} == {Route.SPOOLED}


def test_what_left_the_spool_counts_once_and_its_wait_ends_at_the_primary():
    assert verdict_on(HERE, sent=(SPOOLED,), syphoned=(TO_PRIMARY,)).wait_seconds == 10.0
    by_backlog = verdict_on(HERE, HERE, sent=(SPOOLED,), syphoned=(TO_BACKLOG, MOVED))
    assert (by_backlog.wait_seconds, by_backlog.duplicates, by_backlog.duplicates_predicted) == (30.0, 1, 0)
    twice = verdict_on(HERE, HERE, sent=(SPOOLED,), syphoned=(TO_PRIMARY, TO_PRIMARY))
    assert (twice.duplicates, twice.duplicates_predicted) == (1, 1)


@given(st.lists(st.builds(Found, st.just(QUEUE), st.sampled_from(Location), st.integers(1, 3)), min_size=1, max_size=3))
def test_copies_without_records_count_only_as_unrecorded(found: list[Found]):
    verdict = verdict_on(*found, sent=())
    totals = Totals.of(verdict)
    assert verdict.outcome is Outcome.UNRECORDED
    assert (totals.messages, totals.unrecorded, totals.duplicates_predicted) == (1, 1, 0)
    assert (totals.sent, totals.delivered, totals.lost, totals.waiting, totals.dead_lettered) == (0, 0, 0, 0, 0)


@given(histories, st.builds(Sent, routes, st.floats(0, 1e6)))
def test_late_record_never_makes_an_unrecorded_message_lost(history: History, late: Sent):
    before = classify(history, receiving_entities=[QUEUE])
    after = classify(replace(history, sent=(*history.sent, late)), receiving_entities=[QUEUE])
    if before.outcome is Outcome.UNRECORDED and before.copies:
        assert after.outcome not in {Outcome.UNRECORDED, Outcome.LOST}


@given(histories, copies)
def test_additional_copy_never_makes_a_message_lost(history: History, more: tuple[Found, ...]):
    before = classify(history, receiving_entities=[QUEUE])
    after = classify(replace(history, found=(*history.found, *more)), receiving_entities=[QUEUE])
    assert after.copies >= before.copies
    if before.outcome is not Outcome.LOST:
        assert after.outcome is not Outcome.LOST


def test_a_message_belongs_to_the_incident_of_its_first_divert() -> None:
    incidents = (Incident(1, 50.0, 60.0), Incident(2, 100.0, 110.0))
    late = Sent(Route.BACKLOG, 105.0)
    for sent, number in (((late, DIRECT), 2), ((late, Sent(Route.BACKLOG, 60.0)), 1), ((DIRECT, SPOOLED), None)):
        verdict = classify(History("m", QUEUE, sent), receiving_entities=[QUEUE], incidents=incidents)
        assert verdict.incident == number


def test_wait_is_from_divert_to_arrival_on_the_primary():
    verdict = verdict_on(HERE, sent=(DIVERTED,), syphoned=(MOVED,))
    assert (verdict.outcome, verdict.syphoned, verdict.wait_seconds) == (Outcome.DELIVERED, True, 30.0)


def test_message_consumed_after_its_move_is_not_lost():
    verdict = verdict_on(sent=(DIVERTED,), syphoned=(MOVED,))
    assert (verdict.outcome, verdict.wait_seconds) == (Outcome.CONSUMED, 30.0)


def test_message_also_sent_directly_has_no_wait():
    again = Sent(Route.PRIMARY, 101.0)
    assert verdict_on(HERE, sent=(DIVERTED, again), syphoned=(MOVED,)).wait_seconds is None


def test_wait_is_never_negative():
    assert verdict_on(HERE, sent=(DIVERTED,), syphoned=(Syphoned(99.0),)).wait_seconds == 0.0


@pytest.mark.parametrize(
    ("sent", "syphoned", "found", "duplicates", "predicted"),
    [
        ((DIRECT, DIRECT), (), (Found(QUEUE, Location.ACTIVE, 2),), 1, 1),
        ((DIVERTED,), (MOVED, MOVED), (Found(QUEUE, Location.ACTIVE, 2),), 1, 1),
        ((DIRECT, DIRECT), (), (Found(QUEUE, Location.ACTIVE, 3),), 2, 1),
        ((DIRECT, DIVERTED), (), (HERE, Found(BACKLOG, Location.BACKLOG)), 1, 1),
        ((DIVERTED,), (), (Found(BACKLOG, Location.BACKLOG, 3),), 2, 0),
        ((DIRECT,), (), (HERE, Found(QUEUE, Location.DEAD_LETTER)), 1, 0),
    ],
    ids=["sent twice", "syphoned twice", "more than recorded", "on both namespaces", "in the backlog", "dead-lettered"],
)
def test_duplicates_are_copies_and_predicted_from_records(
    sent: tuple[Sent, ...], syphoned: tuple[Syphoned, ...], found: tuple[Found, ...], duplicates: int, predicted: int
):
    verdict = verdict_on(*found, sent=sent, syphoned=syphoned)
    assert (verdict.copies, verdict.duplicates, verdict.duplicates_predicted) == (1 + duplicates, duplicates, predicted)


def test_topic_message_is_delivered_when_every_subscription_has_it():
    receiving = ("delays/Subscriptions/all", "delays/Subscriptions/late")
    first = Found(receiving[0], Location.ACTIVE)
    assert verdict_on(first, receiving=receiving).outcome is Outcome.CONSUMED, "the other subscription's was received"
    both = verdict_on(first, Found(receiving[1].upper(), Location.ACTIVE), receiving=receiving)
    assert (both.outcome, both.copies, both.duplicates) == (Outcome.DELIVERED, 1, 0)


@pytest.mark.parametrize(
    ("sent", "found", "altered"),
    [
        (("a",), ("a", "a"), False),
        (("a",), ("a", "b"), True),
        (("a",), (None,), True),
        (("a",), (), False),
        ((None,), ("b",), False),
        (("a", None), ("b",), True),
        (("a", "b"), ("c",), True),
        (("a", "b"), ("b",), False),
        ((), ("c",), False),
    ],
    ids=[
        "same",
        "changed",
        "a value in place of data",
        "consumed",
        "values are not compared",
        "neither data nor value",
        "of no sender",
        "repeated, and the first is consumed",
        "no record",
    ],
)
def test_changed_body_is_found_by_its_digest(
    sent: tuple[str | None, ...], found: tuple[str | None, ...], altered: bool
):
    verdict = verdict_on(
        *(replace(HERE, digest=each) for each in found), sent=tuple(replace(DIRECT, digest=each) for each in sent)
    )
    assert (verdict.altered, Totals.of(verdict).altered) == (altered, int(altered))


@pytest.mark.parametrize(
    ("found", "altered"),
    [("a", [None, "victim"]), ("v", [None, "other"]), ("av", []), ("", []), ("x", [None, "victim", "other"])],
    ids=["of the other", "of the victim", "of both", "consumed", "of nobody"],
)
def test_the_message_of_another_run_does_not_stand_in_for_that_of_its_own(found: str, altered: list[str | None]):
    history = History(
        "m",
        QUEUE,
        (replace(DIRECT, run="other", digest="a"), replace(DIVERTED, run="victim", digest="v")),
        found=tuple(replace(HERE, digest=each) for each in found),
    )
    verdicts = {run: classify(history, receiving_entities=[QUEUE], run=run) for run in (None, "victim", "other")}
    assert [run for run, verdict in verdicts.items() if verdict.altered] == altered


def test_a_receipt_has_no_body_to_compare():
    receipt = Found("", Location.RECEIPT)
    assert not verdict_on(receipt, sent=(replace(DIRECT, digest="a"),)).altered
    in_a_tap = replace(receipt, place="flights/Subscriptions/tap")
    assert verdict_on(in_a_tap, sent=(replace(DIRECT, digest="a"),)).altered


def test_copy_outside_the_receiving_entities_is_an_error():
    with pytest.raises(ValueError, match=r"'elsewhere'.*not a receiving entity of 'flights'"):
        verdict_on(Found("elsewhere", Location.ACTIVE))


def test_entity_without_receiving_entities_is_an_error():
    with pytest.raises(ValueError, match="no receiving entity"):
        verdict_on(receiving=())


@given(st.lists(histories))
def test_totals_are_consistent(all_histories: list[History]):
    totals = Totals.of_all(classify(history, receiving_entities=[QUEUE]) for history in all_histories)
    assert totals.messages == len(all_histories) == totals.sent + totals.unrecorded
    assert totals.sent == totals.primary + totals.diverted
    assert (
        totals.sent
        == totals.delivered + totals.waiting + totals.dead_lettered + totals.consumed + totals.spooled + totals.lost
    )
    assert totals.duplicates_predicted <= totals.duplicates
    assert totals.waited <= totals.syphoned
    assert totals.longest_wait_seconds <= totals.wait_seconds + 1e-6


@given(st.lists(histories), st.integers(0))
def test_totals_of_parts_add_up(all_histories: list[History], cut: int):
    verdicts = [classify(history, receiving_entities=[QUEUE]) for history in all_histories]
    cut %= len(verdicts) + 1
    parts, whole = Totals.of_all(verdicts[:cut]) + Totals.of_all(verdicts[cut:]), Totals.of_all(verdicts)
    assert parts.wait_seconds == pytest.approx(whole.wait_seconds)
    assert (parts.messages, parts.lost, parts.duplicates, parts.longest_wait_seconds) == (
        whole.messages,
        whole.lost,
        whole.duplicates,
        whole.longest_wait_seconds,
    )


@st.composite
def faultless(draw: st.DrawFn) -> History:
    """Return a message without faults: direct, diverted and moved, or diverted and waiting."""
    at, state = draw(st.floats(0, 1e6)), draw(st.sampled_from([Location.ACTIVE, Location.SCHEDULED]))
    identity = draw(st.uuids()).hex
    match draw(st.sampled_from(["direct", "moved", "waiting"])):
        case "direct":
            return History(identity, QUEUE, (Sent(Route.PRIMARY, at),), (), (Found(QUEUE, state),))
        case "moved":
            moved = Syphoned(at + draw(st.floats(0, 1e3)))
            return History(identity, QUEUE, (Sent(Route.BACKLOG, at, BACKLOG),), (moved,), (Found(QUEUE, state),))
    return History(identity, QUEUE, (Sent(Route.BACKLOG, at, BACKLOG),), (), (Found(BACKLOG, Location.BACKLOG),))


@given(st.lists(faultless(), min_size=1, max_size=20, unique_by=lambda history: history.message_id), st.data())
def test_only_injected_losses_and_duplicates_are_reported(clean: list[History], data: st.DataObject):
    injected = data.draw(
        st.lists(st.sampled_from(["", "loss", "copy", "resend"]), min_size=len(clean), max_size=len(clean))
    )
    histories = [inject(history, fault) for history, fault in zip(clean, injected, strict=True)]
    verdicts = [classify(history, receiving_entities=[QUEUE]) for history in histories]
    for verdict, fault in zip(verdicts, injected, strict=True):
        assert (verdict.outcome is Outcome.LOST) == (
            fault == "loss" and verdict.route is Route.BACKLOG and not verdict.syphoned
        )
        assert (verdict.outcome is Outcome.CONSUMED) == (fault == "loss" and verdict.outcome is not Outcome.LOST)
        assert verdict.duplicates == (fault in {"copy", "resend"})
        assert verdict.duplicates_predicted == (fault == "resend")


def inject(history: History, fault: str) -> History:
    sent, found = history.sent, history.found
    match fault:
        case "loss":
            found = ()
        case "copy":
            found += (Found(QUEUE, Location.ACTIVE),)
        case "resend":
            sent += (Sent(Route.PRIMARY, sent[0].at + 1, run="again"),)
            found += (Found(QUEUE, Location.ACTIVE),)
    return History(history.message_id, history.entity, sent, history.syphoned, found)


def test_first_acceptance_and_first_arrival_count_in_any_order_of_records() -> None:
    sent = (Sent(Route.BACKLOG, 30.0), Sent(Route.BACKLOG, 10.0))
    syphoned = (Syphoned(50.0), Syphoned(25.0), Syphoned(40.0))
    assert verdict_on(HERE, sent=sent, syphoned=syphoned).wait_seconds == 15.0
    assert verdict_on(sent=(Sent(Route.BACKLOG, 30.0), Sent(Route.PRIMARY, 10.0))).route is Route.PRIMARY


def test_sum_of_totals_keeps_longest_wait() -> None:
    waits = [Totals(waited=1, wait_seconds=wait, longest_wait_seconds=wait) for wait in (2.0, 5.0, 3.0)]
    total = sum(waits, Totals())
    assert (total.wait_seconds, total.longest_wait_seconds) == (10.0, 5.0)
