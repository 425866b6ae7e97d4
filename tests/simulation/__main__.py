"""``python -m tests.simulation --hours 24 --seed 7``: histories in simulated time, one after another."""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, fields
from multiprocessing import get_context

from tests.simulation.history import History
from tests.simulation.record import Outcome

_HOURS_PER_HISTORY = 24.0
_HOURS_PER_YEAR = 8766.0
_REPORT_SECONDS = 60.0
_SHOWN = 5
_LEAST_CPU_SECONDS = 60.0
_CPU_SECONDS_PER_HOUR = 5.0
_COUNTED = (
    "sends",
    "messages",
    "accepted",
    "diverted",
    "spooled",
    "faults",
    "strikes",
    "kills",
    "poison",
    "dead_lettered",
    "lost",
    "duplicates",
    "disorder",
    "ordered_disorder",
)


@dataclass(frozen=True)
class _Plan:
    seed: int
    hours: float
    ordered: bool
    poison: float
    spool: bool
    trace: bool


def main() -> int:
    """Run histories and print what happened; 1 if a guarantee was violated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=float, help="simulated hours in total; 24 by default")
    parser.add_argument("--years", type=float, help="simulated years in total, instead of hours")
    parser.add_argument("--seed", type=int, default=1, help="of the first history; each further one adds 1")
    parser.add_argument("--per-history", type=float, default=_HOURS_PER_HISTORY, help="simulated hours of one history")
    parser.add_argument(
        "--ordering", choices=("none", "session", "both"), default="both", help="of the pair; by default each in turn"
    )
    parser.add_argument("--poison", type=float, default=0.01, help="share of messages that the service rejects")
    parser.add_argument("--spool", action="store_true", help="with a spool, and both namespaces down at times")
    parser.add_argument("--jobs", type=int, default=1, help="histories at once")
    parser.add_argument("--trace", action="store_true", help="print everything that happens")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # Sets of strings are iterated in an order that otherwise differs from run to run.
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])  # noqa: S606 - itself
    plans = list(_plans(given))
    total, failed, started = Outcome(given.seed, ordered=False), 0, time.perf_counter()
    reported = started
    for plan, outcome in zip(plans, _outcomes(plans, jobs=given.jobs), strict=True):
        _add(total, outcome)
        if outcome.violations:
            failed += 1
            report_failure(outcome, hours=plan.hours, poison=plan.poison, spool=plan.spool)
        if time.perf_counter() - reported > _REPORT_SECONDS:
            reported = time.perf_counter()
            _report(total, failed, seconds=reported - started)
    _report(total, failed, seconds=time.perf_counter() - started)
    return 1 if failed else 0


def report_failure(outcome: Outcome, *, hours: float, poison: float, spool: bool = False) -> None:
    """Print what was violated, and how to see it again."""
    mode = "session" if outcome.ordered else "none"
    print(f"seed {outcome.seed}, ordering={mode}: {len(outcome.violations)} violations")
    for violation in outcome.violations[:_SHOWN]:
        print(f"  {violation}")
    more = f"--poison {poison:g} --trace" + (" --spool" if spool else "")
    print(f"  replay: make simulate HOURS={hours:g} SEED={outcome.seed} ORDERING={mode} ARGS='{more}'", flush=True)


def _plans(given: argparse.Namespace) -> Iterator[_Plan]:
    hours = 24.0 if given.hours is None else given.hours
    left = hours if given.years is None else given.years * _HOURS_PER_YEAR
    seed = given.seed
    while left > 0:
        ordered = given.ordering == "session" or (given.ordering == "both" and seed % 2 == 0)
        length = min(given.per_history, left)
        yield _Plan(seed, length, ordered, given.poison, given.spool, given.trace)
        left -= length
        seed += 1


def _outcomes(plans: list[_Plan], *, jobs: int) -> Iterator[Outcome]:
    """Run each history in a process of its own, whose end is quicker than a garbage collection."""
    gc.freeze()
    with get_context("fork").Pool(jobs, initializer=gc.disable, maxtasksperchild=1) as pool:
        yield from pool.imap(_run, plans)


def _run(plan: _Plan) -> Outcome:
    trace = print if plan.trace else None
    history = History(
        plan.seed, hours=plan.hours, ordered=plan.ordered, poison=plan.poison, spool=plan.spool, trace=trace
    )
    # A callback that never ends lets no simulated time pass, so only a limit in real time notices it.
    signal.signal(signal.SIGPROF, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_PROF, _LEAST_CPU_SECONDS + plan.hours * _CPU_SECONDS_PER_HOUR)
    try:
        return history.run()
    except KeyboardInterrupt:
        outcome = Outcome(plan.seed, ordered=plan.ordered)
        outcome.violations.append("time stands still: " + traceback.format_exc(limit=-8))
        return outcome
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _add(total: Outcome, outcome: Outcome) -> None:
    for each in fields(Outcome):
        if each.name not in {"seed", "ordered", "violations", "digest"}:
            setattr(total, each.name, getattr(total, each.name) + getattr(outcome, each.name))


def _report(total: Outcome, failed: int, *, seconds: float) -> None:
    hours = total.seconds / 3600
    print(f"simulated {hours:.1f} h ({hours / _HOURS_PER_YEAR:.3f} years) from seed {total.seed} on in {seconds:.0f} s")
    print("  " + ", ".join(f"{name.replace('_', '-')} {getattr(total, name)}" for name in _COUNTED))
    print(f"  {hours / seconds:.1f} simulated hours per second, histories with violations: {failed}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
