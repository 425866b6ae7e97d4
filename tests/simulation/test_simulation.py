"""Histories of a few simulated hours hold every guarantee, can be replayed, and would show a broken one.

The product runs unchanged over the engine of the embedded Service Bus in memory. Longer: ``make simulate YEARS=1``.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core.sdk.receive_link import ReceiveLink
from tests.simulation import __main__ as command
from tests.simulation.history import History
from tests.simulation.record import Outcome
from tests.simulation.service import Service
from tests.simulation.spool import Files

ROOT = Path(__file__).parents[2]
SEEDS = (1, 2, 3)


def lived(seed: int, *, hours: float = 3, ordered: bool = False, poison: float = 0.0, spool: bool = False) -> Outcome:
    return History(seed, hours=hours, ordered=ordered, poison=poison, spool=spool).run()


def test_no_accepted_message_is_lost_whatever_breaks_with_poison_at_any_position():
    outcomes = [lived(seed, poison=0.02) for seed in SEEDS]
    assert [violation for each in outcomes for violation in each.violations] == []
    assert sum(each.lost for each in outcomes) == 0
    # It was a test only if there was something to survive.
    assert sum(each.faults for each in outcomes) > 60
    assert sum(each.kills for each in outcomes) > 3
    assert sum(each.diverted for each in outcomes) > 10
    assert sum(each.poison for each in outcomes) > 5


def test_sessions_keep_their_order():
    outcomes = [lived(seed, ordered=True, poison=0.02) for seed in SEEDS]
    assert [violation for each in outcomes for violation in each.violations] == []
    assert sum(each.lost + each.disorder for each in outcomes) == 0
    assert sum(each.diverted for each in outcomes) > 10


def test_section_10_what_was_spooled_is_delivered_whatever_breaks():
    outcomes = [lived(seed, spool=True, poison=0.02) for seed in SEEDS]
    assert [violation for each in outcomes for violation in each.violations] == []
    assert sum(each.lost for each in outcomes) == 0
    assert sum(each.spooled for each in outcomes) > 20
    assert sum(each.kills for each in outcomes) > 3


def test_section_10_sessions_keep_their_order_through_the_spool():
    outcomes = [lived(seed, ordered=True, spool=True, poison=0.02) for seed in SEEDS]
    assert [violation for each in outcomes for violation in each.violations] == []
    assert sum(each.lost + each.disorder for each in outcomes) == 0
    assert sum(each.spooled for each in outcomes) > 20


@pytest.mark.parametrize(("ordered", "spool"), [(False, False), (True, False), (False, True), (True, True)])
def test_the_same_seed_gives_the_same_history(*, ordered: bool, spool: bool):
    first, again, other = (lived(seed, hours=1, ordered=ordered, spool=spool) for seed in (5, 5, 6))
    assert first.digest == again.digest != other.digest
    assert first == again


# What the checks must find, each a defect planted in the product or the service.


def test_a_message_that_is_confirmed_but_not_stored_is_reported(monkeypatch: pytest.MonkeyPatch):
    send, calls = Service.send, []

    def lose_some(service: Service, entity: Any, encoded: Any) -> None:
        calls.append(entity)
        if not 20 <= len(calls) < 30:
            send(service, entity, encoded)

    monkeypatch.setattr(Service, "send", lose_some)
    outcome = lived(1)
    assert outcome.lost > 0
    assert any("was accepted and is nowhere" in each for each in outcome.violations)


def test_a_file_of_the_spool_that_is_not_written_is_found(monkeypatch: pytest.MonkeyPatch):
    create, calls = Files.create, []

    def lose_some(files: Files, name: str, content: bytes) -> None:
        calls.append(name)
        if not (name.startswith("messages/") and len(calls) % 3):
            create(files, name, content)

    monkeypatch.setattr(Files, "create", lose_some)
    outcome = lived(1, spool=True)
    assert outcome.lost > 0
    assert any("was accepted and is nowhere" in each for each in outcome.violations)


def test_a_syphon_that_completes_before_it_sends_is_found(monkeypatch: pytest.MonkeyPatch):
    receive = ReceiveLink.receive

    async def complete_at_once(link: ReceiveLink, **options: Any) -> Any:
        received = await receive(link, **options)
        await link.complete(received, timeout=5)
        return received

    monkeypatch.setattr(ReceiveLink, "receive", complete_at_once)
    assert any(lived(seed, hours=6).lost > 0 for seed in SEEDS)


def test_disorder_is_counted_by_first_arrivals():
    ordered = History(1, hours=1, ordered=True)
    assert ordered.verdict.disorder("flights.a", [1, 2, 3, 7, 8]) == 0
    assert ordered.verdict.disorder("flights.a", [1, 4, 2, 3, 5]) == 2
    assert "flights.a is out of order 2 times, first 2 after 4" in ordered.record.outcome.violations[0]
    ordered.loop.close()


def test_the_command_reports_what_happened_and_how_to_replay_a_failure(capsys: pytest.CaptureFixture[str]):
    done = subprocess.run(
        [sys.executable, "-m", "tests.simulation", "--hours", "2", "--per-history", "1", "--poison", "0"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for word in ("simulated", "sends", "faults", "kills", "lost 0", "duplicates", "disorder", "hours per second"):
        assert word in done.stdout
    command.report_failure(Outcome(7, ordered=True, violations=["at 1 s: lost"]), hours=24.0, poison=0.01)
    printed = capsys.readouterr().out
    assert "make simulate HOURS=24 SEED=7 ORDERING=session" in printed
    assert "at 1 s: lost" in printed
