"""SPEC section 9: ledger and queues prove per message that nothing is lost, what came twice, how long it waited."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.events import Route
from servicebus_pair.core.reconcile import (
    Found,
    History,
    Location,
    Outcome,
    Sent,
    Syphoned,
    Totals,
    Verdict,
    judge,
)

QUEUE = "flights"
BACKLOG = "contoso/x-servicebus-transfer/3"
DIRECT = Sent(Route.PRIMARY, 100.0, run="r")
DIVERTED = Sent(Route.BACKLOG, 100.0, BACKLOG, "r")
MOVED = Syphoned(130.0, BACKLOG)
HERE = Found(QUEUE, Location.ACTIVE)


routes = st.sampled_from(Route)
sends = st.lists(st.builds(Sent, routes, st.floats(0, 1e6)), max_size=3).map(tuple)
moves = st.lists(st.builds(Syphoned, st.floats(0, 1e6)), max_size=3).map(tuple)
copies = st.lists(st.builds(Found, st.just(QUEUE), st.sampled_from(Location), st.integers(1, 3)), max_size=3).map(tuple)
histories = st.builds(History, st.uuids().map(str), st.just(QUEUE), sends, moves, copies)


def verdict_on(
    *found: Found,
    sent: tuple[Sent, ...] = (DIRECT,),
    syphoned: tuple[Syphoned, ...] = (),
    places: tuple[str, ...] = (QUEUE,),
) -> Verdict:
    return judge(History("m-1", QUEUE, sent, syphoned, found), places=places)


@pytest.mark.parametrize("location", [Location.ACTIVE, Location.SCHEDULED, Location.DEFERRED])
def test_a_sent_message_that_its_queue_holds_is_delivered(location: Location):
    verdict = verdict_on(Found(QUEUE, location))
    assert (verdict.outcome, verdict.duplicates) == (Outcome.DELIVERED, 0)


def test_a_sent_message_that_no_queue_holds_is_lost():
    assert verdict_on().outcome is Outcome.LOST


def test_a_syphoned_message_that_no_queue_holds_is_lost_though_no_send_is_recorded():
    assert verdict_on(sent=(), syphoned=(MOVED,)).outcome is Outcome.LOST


def test_a_diverted_message_in_the_backlog_waits_and_is_not_lost():
    verdict = verdict_on(Found(BACKLOG, Location.BACKLOG), sent=(DIVERTED,))
    assert (verdict.outcome, verdict.route, verdict.wait_seconds) == (Outcome.WAITING, Route.BACKLOG, None)


@pytest.mark.parametrize("found", [Found(QUEUE, Location.DEAD_LETTER), Found(BACKLOG, Location.BACKLOG_DEAD_LETTER)])
def test_a_message_in_a_dead_letter_queue_is_dead_lettered(found: Found):
    assert verdict_on(found, sent=(DIVERTED,)).outcome is Outcome.DEAD_LETTERED


def test_a_message_that_the_ledger_does_not_know_is_unrecorded_and_not_delivered():
    verdict = verdict_on(HERE, sent=())
    assert (verdict.outcome, verdict.route) == (Outcome.UNRECORDED, None)


@given(st.lists(st.builds(Found, st.just(QUEUE), st.sampled_from(Location), st.integers(1, 3)), min_size=1, max_size=3))
def test_beside_an_active_publisher_what_is_not_recorded_yet_is_called_unrecorded_and_nothing_else(found: list[Found]):
    verdict = verdict_on(*found, sent=())
    totals = Totals.of(verdict)
    assert verdict.outcome is Outcome.UNRECORDED
    assert (totals.messages, totals.unrecorded) == (1, 1)
    assert (totals.sent, totals.delivered, totals.lost, totals.waiting, totals.dead_lettered) == (0, 0, 0, 0, 0)


@given(histories, st.builds(Sent, routes, st.floats(0, 1e6)))
def test_a_record_that_comes_late_changes_an_unrecorded_message_and_never_makes_it_lost(history: History, late: Sent):
    before = judge(history, places=[QUEUE])
    after = judge(replace(history, sent=(*history.sent, late)), places=[QUEUE])
    if before.outcome is Outcome.UNRECORDED and before.copies:
        assert after.outcome not in {Outcome.UNRECORDED, Outcome.LOST}


@given(histories, copies)
def test_another_copy_never_makes_a_message_lost(history: History, more: tuple[Found, ...]):
    before = judge(history, places=[QUEUE])
    after = judge(replace(history, found=(*history.found, *more)), places=[QUEUE])
    assert after.copies >= before.copies
    if before.outcome is not Outcome.LOST:
        assert after.outcome is not Outcome.LOST


def test_a_diverted_message_waited_from_the_backlogs_acceptance_to_the_primarys():
    verdict = verdict_on(HERE, sent=(DIVERTED,), syphoned=(MOVED,))
    assert (verdict.outcome, verdict.syphoned, verdict.wait_seconds) == (Outcome.DELIVERED, True, 30.0)


def test_a_message_that_also_went_straight_to_the_primary_did_not_wait():
    again = Sent(Route.PRIMARY, 101.0)
    assert verdict_on(HERE, sent=(DIVERTED, again), syphoned=(MOVED,)).wait_seconds is None


def test_clocks_that_disagree_make_no_negative_wait():
    assert verdict_on(HERE, sent=(DIVERTED,), syphoned=(Syphoned(99.0),)).wait_seconds == 0.0


def test_a_copy_sent_again_by_a_run_that_was_tried_again_is_a_duplicate_that_the_ledger_predicts():
    verdict = verdict_on(Found(QUEUE, Location.ACTIVE, 2), sent=(DIRECT, DIRECT))
    assert (verdict.copies, verdict.duplicates, verdict.duplicates_predicted) == (2, 1, 1)


def test_a_copy_syphoned_twice_is_a_duplicate_that_the_ledger_predicts():
    verdict = verdict_on(Found(QUEUE, Location.ACTIVE, 2), sent=(DIVERTED,), syphoned=(MOVED, MOVED))
    assert (verdict.duplicates, verdict.duplicates_predicted) == (1, 1)


def test_a_copy_that_the_ledger_knows_nothing_of_is_a_duplicate_that_it_does_not_predict():
    verdict = verdict_on(Found(QUEUE, Location.ACTIVE, 3), sent=(DIRECT, DIRECT))
    assert (verdict.duplicates, verdict.duplicates_predicted) == (2, 1)


def test_a_copy_on_the_primary_and_one_in_the_backlog_are_a_delivery_and_a_duplicate():
    verdict = verdict_on(HERE, Found(BACKLOG, Location.BACKLOG), sent=(DIRECT, DIVERTED))
    assert (verdict.outcome, verdict.duplicates, verdict.duplicates_predicted) == (Outcome.DELIVERED, 1, 1)


def test_a_topics_message_is_delivered_only_when_every_subscription_holds_it():
    places = ("delays/Subscriptions/all", "delays/Subscriptions/late")
    first = Found(places[0], Location.ACTIVE)
    assert verdict_on(first, places=places).outcome is Outcome.LOST
    both = verdict_on(first, Found(places[1].upper(), Location.ACTIVE), places=places)
    assert (both.outcome, both.copies, both.duplicates) == (Outcome.DELIVERED, 1, 0)


def test_a_copy_in_a_place_of_another_entity_is_an_error_that_names_the_place():
    with pytest.raises(ValueError, match=r"'elsewhere'.*no place of 'flights'"):
        verdict_on(Found("elsewhere", Location.ACTIVE))


def test_an_entity_without_a_place_is_an_error():
    with pytest.raises(ValueError, match="no place"):
        verdict_on(places=())


@given(st.lists(histories))
def test_totals_add_up_whatever_happened(all_histories: list[History]):
    totals = Totals.of_all(judge(history, places=[QUEUE]) for history in all_histories)
    assert totals.messages == len(all_histories) == totals.sent + totals.unrecorded
    assert totals.sent == totals.primary + totals.diverted
    assert totals.sent == totals.delivered + totals.waiting + totals.dead_lettered + totals.lost
    assert totals.duplicates_predicted <= totals.duplicates
    assert totals.waited <= totals.syphoned
    assert totals.longest_wait_seconds <= totals.wait_seconds + 1e-6


@given(st.lists(histories), st.integers(0))
def test_totals_of_parts_are_the_totals_of_the_whole(all_histories: list[History], cut: int):
    verdicts = [judge(history, places=[QUEUE]) for history in all_histories]
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
    """A message as it is when nothing went wrong: straight, diverted and moved, or diverted and waiting."""
    at, state = draw(st.floats(0, 1e6)), draw(st.sampled_from([Location.ACTIVE, Location.SCHEDULED]))
    identity = draw(st.uuids()).hex
    match draw(st.sampled_from(["straight", "moved", "waiting"])):
        case "straight":
            return History(identity, QUEUE, (Sent(Route.PRIMARY, at),), (), (Found(QUEUE, state),))
        case "moved":
            moved = Syphoned(at + draw(st.floats(0, 1e3)))
            return History(identity, QUEUE, (Sent(Route.BACKLOG, at, BACKLOG),), (moved,), (Found(QUEUE, state),))
    return History(identity, QUEUE, (Sent(Route.BACKLOG, at, BACKLOG),), (), (Found(BACKLOG, Location.BACKLOG),))


@given(st.lists(faultless(), min_size=1, max_size=20, unique_by=lambda history: history.message_id), st.data())
def test_exactly_the_planted_losses_and_duplicates_are_found(clean: list[History], data: st.DataObject):
    planted = data.draw(
        st.lists(st.sampled_from(["", "loss", "copy", "resend"]), min_size=len(clean), max_size=len(clean))
    )
    histories = [plant(history, fault) for history, fault in zip(clean, planted, strict=True)]
    verdicts = [judge(history, places=[QUEUE]) for history in histories]
    for verdict, fault in zip(verdicts, planted, strict=True):
        assert (verdict.outcome is Outcome.LOST) == (fault == "loss")
        assert verdict.duplicates == (fault in {"copy", "resend"})
        assert verdict.duplicates_predicted == (fault == "resend")


def plant(history: History, fault: str) -> History:
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


def test_the_first_acceptance_and_the_first_arrival_count_in_whatever_order_records_are_read() -> None:
    history = History(
        "m",
        "flights",
        sent=(Sent(Route.BACKLOG, 30.0), Sent(Route.BACKLOG, 10.0)),
        syphoned=(Syphoned(50.0), Syphoned(25.0), Syphoned(40.0)),
        found=(Found("flights", Location.ACTIVE),),
    )
    assert judge(history, places=["flights"]).wait_seconds == 15.0
    records = (Sent(Route.BACKLOG, 30.0), Sent(Route.PRIMARY, 10.0))
    assert judge(History("m", "flights", sent=records), places=["flights"]).route is Route.PRIMARY


def test_copies_in_the_backlog_are_counted_each() -> None:
    found = (Found("contoso/x-servicebus-transfer/0", Location.BACKLOG, 3),)
    verdict = judge(History("m", "flights", sent=(Sent(Route.BACKLOG, 1.0),), found=found), places=["flights"])
    assert (verdict.copies, verdict.duplicates) == (3, 2)


def test_the_longest_wait_of_many_is_one_of_them_and_not_their_sum() -> None:
    waits = [Totals(waited=1, wait_seconds=wait, longest_wait_seconds=wait) for wait in (2.0, 5.0, 3.0)]
    total = sum(waits, Totals())
    assert (total.wait_seconds, total.longest_wait_seconds) == (10.0, 5.0)
