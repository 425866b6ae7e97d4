"""``python -m tests.conformance``: the SDK's own live tests against the embedded Service Bus.

The source distribution of the installed azure-servicebus version is downloaded to ``.conformance/`` and its tests run
unmodified; none of them is part of this project. ``stubs`` replaces Azure's private test support, ``host_resolution``
resolves the namespace's host name to an embedded Service Bus, whose ARM interface creates the entities, and
``certificate`` makes its certificate trusted. The tests mostly sleep, so many run in parallel. The report is
``.conformance/report.json``; ``expected.toml`` lists the tests that are not expected to pass, with reasons.

Then clients of other makes take a walk each (:mod:`tests.conformance.clients.matrix`), with their steps in
``.conformance/clients.json``. ``--recordings`` replays conversations with the real service instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from tests.conformance.clients.matrix import known_clients, run_clients, table
from tests.conformance.recordings import replay_recordings
from tests.conformance.sdk_source import CACHE, fetch_source, installed_version
from tests.conformance.sdk_tests import ADMINISTRATION, MESSAGING, run
from tests.conformance.verdict import load_expected, verdict_on

_SUMMARY: Final = "The Azure SDK's live tests, and clients of other makes, against the embedded Service Bus."


def main() -> int:
    """Run, report and return the exit status: 0 if every outcome is as expected."""
    options = _parser().parse_args()
    if options.clients is not None:
        return _run_clients(options.clients)
    if options.recordings:
        print(asyncio.run(replay_recordings()))
        return 0
    source = fetch_source()
    # Sequentially: the administration tests delete all entities.
    groups = [ADMINISTRATION] if options.admin else [MESSAGING] if options.messages else [ADMINISTRATION, MESSAGING]
    started = time.monotonic()
    outcomes: dict[str, Mapping[str, Any]] = {}
    for paths in groups:
        outcomes |= run(source, paths=paths, only=options.only, workers=options.workers, list_only=options.list)
    if options.list:
        return 0
    verdict = verdict_on(outcomes, expected=load_expected())
    seconds = round(time.monotonic() - started)
    report = {
        "distribution": f"azure-servicebus {installed_version()}",
        "seconds": seconds,
        "counts": verdict.counts,
        "tests": verdict.tests,
    }
    (CACHE / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(verdict.table(seconds=seconds))
    as_expected = len(outcomes) > 0 and verdict.is_as_expected
    if not options.admin and not options.messages and options.only is None:
        as_expected = _run_clients("") == 0 and as_expected
    return 0 if as_expected else 1


def _run_clients(wanted: str) -> int:
    """Run the clients whose names contain a text; return 0 if every step passed that could be taken."""
    walks = run_clients([each for each in known_clients() if wanted.casefold() in each.name.casefold()])
    print(table(walks))
    report = [
        {"client": each.client.name, "version": each.version, "skipped": each.skipped, "steps": each.steps}
        for each in walks
    ]
    (CACHE / "clients.json").write_text(json.dumps(report, indent=1) + "\n")
    return 0 if len(walks) > 0 and all(each.passed == len(each.steps) for each in walks) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=_SUMMARY)
    parser.add_argument("--only", metavar="EXPRESSION", help="run only tests matching this pytest -k expression")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--admin", action="store_true", help="run only the administration tests")
    which.add_argument(
        "--clients",
        nargs="?",
        const="",
        metavar="NAME",
        help="run only clients of other makes; those with NAME in theirs",
    )
    which.add_argument("--messages", action="store_true", help="run only the messaging tests")
    which.add_argument(
        "--recordings", action="store_true", help="replay recorded conversations with the real resource manager"
    )
    parser.add_argument("--list", action="store_true", help="list the tests without running them")
    parser.add_argument(
        "--workers", type=int, default=16, metavar="N", help="number of parallel processes (default: %(default)s)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
