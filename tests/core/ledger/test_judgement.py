"""What a reconciliation proves, and what it does not (SPEC section 9)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from servicebus_pair.core.ledger.judgement import Evidence, Judgement, judge
from servicebus_pair.core.ledger.totals import Totals

FINE = Totals(messages=1000, sent=1000, primary=1000, delivered=600, consumed=400, consumed_unseen=400)
GAPS = {
    "the ledger has no records of run 'mondy' for these entities: did you mean 'monday'?": Evidence(
        run="mondy", recorded=False, similar_runs=("monday",)
    ),
    "entity delays was not examined, to which 100 recorded messages were sent: name it": Evidence(
        unexamined={"delays": 100}
    ),
    "ledger file a.jsonl is not closed: its writer was killed or still runs, and no closed file records 7 of its "
    "messages": Evidence(unclosed={"a.jsonl": 7}),
    "ledger file a.jsonl holds 99 of the 100 records that it was closed with": Evidence(damaged={"a.jsonl": (99, 100)}),
    "ledger file a.jsonl is missing, with 100 records according to the manifest": Evidence(missing={"a.jsonl": 100}),
    "the manifest counts 100 messages to flights, the ledger has 90 records of them": Evidence(
        short={"flights": (100, 90)}
    ),
    "1 message is in spool 3f9c on w-7 in /mnt/spool, which cannot be seen from here: empty it where it is": Evidence(
        unseen_spools={"3f9c on w-7 in /mnt/spool": 1}
    ),
    "400 consumed or expired messages have no receipt": Evidence(without_receipt=400),
}


def test_consumed_messages_are_no_loss():
    assert judge(FINE, Evidence()) == (Judgement.PROVEN, ())


@pytest.mark.parametrize("reason", GAPS)
def test_what_was_not_examined_is_not_proven(reason: str):
    assert judge(FINE, GAPS[reason]) == (Judgement.NOT_PROVEN, (reason,))


@pytest.mark.parametrize("reason", GAPS)
def test_loss_comes_before_what_is_not_proven(reason: str):
    judgement, reasons = judge(replace(FINE, lost=1, consumed=399), GAPS[reason])
    assert judgement is Judgement.LOST
    assert reasons == ("1 message is lost: diverted, in no backlog queue, and never moved", reason)


def test_changed_body_is_a_loss():
    judgement, reasons = judge(replace(FINE, altered=2), Evidence())
    assert (judgement, reasons) == (
        Judgement.LOST,
        ("2 messages are altered: a copy has another body, or another message its id",),
    )


def test_judging_no_message_proves_nothing():
    assert judge(Totals(unrecorded=5, messages=5), Evidence()) == (
        Judgement.NOT_PROVEN,
        ("the ledger records no message that was sent to these entities",),
    )


def test_what_waits_in_a_spool_is_named_once():
    there = "3 messages are in spool there, which cannot be seen from here: empty it where it is"
    for spooled, here in ((3, ()), (5, ("2 messages are in the spool: empty it first",))):
        totals = replace(FINE, spooled=spooled)
        assert judge(totals, Evidence(unseen_spools={"there": 3})) == (Judgement.NOT_PROVEN, (there, *here))
