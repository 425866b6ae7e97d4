"""``python -m tests.conformance``: the SDK's own live tests against the embedded Service Bus.

They are downloaded as the source distribution of azure-servicebus that fits the installed version, kept in
``.conformance/`` and run unmodified; none of them is part of this project. What they need of Azure's private test
support is stood in for (``standins``), the namespace's host name leads to an embedded Service Bus (``names``), whose
ARM interface makes the entities, and its certificate is trusted (``trust``). They mostly sleep, so many run at a
time. The report is ``.conformance/report.json``; ``expected.toml`` lists what is not expected to pass, and why.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from tests.conformance.run import ADMINISTRATION, MESSAGING, run
from tests.conformance.source import CACHE, fetch_source, installed_version
from tests.conformance.verdict import judge, load_expected

_SUMMARY: Final = "The Azure SDK's own live tests against the embedded Service Bus."


def main() -> int:
    """Run, report and return the exit status: 0 when every outcome is the expected one."""
    options = _parser().parse_args()
    source = fetch_source()
    # One after the other: the tests of administration delete every entity that they find.
    groups = [ADMINISTRATION] if options.admin else [MESSAGING] if options.messages else [ADMINISTRATION, MESSAGING]
    started = time.monotonic()
    outcomes: dict[str, Mapping[str, Any]] = {}
    for paths in groups:
        outcomes |= run(source, paths=paths, only=options.only, lanes=options.lanes, list_only=options.list)
    if options.list:
        return 0
    verdict = judge(outcomes, expected=load_expected())
    seconds = round(time.monotonic() - started)
    report = {
        "distribution": f"azure-servicebus {installed_version()}",
        "seconds": seconds,
        "counts": verdict.counts,
        "tests": verdict.tests,
    }
    (CACHE / "report.json").write_text(json.dumps(report, indent=1) + "\n")
    print(verdict.table(seconds=seconds))
    return 0 if len(outcomes) > 0 and verdict.is_as_expected else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=_SUMMARY)
    parser.add_argument("--only", metavar="EXPRESSION", help="the tests whose names match, as pytest's -k")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--admin", action="store_true", help="the tests of administration only")
    which.add_argument("--messages", action="store_true", help="the tests of messaging only")
    parser.add_argument("--list", action="store_true", help="print the tests and run none")
    parser.add_argument("--lanes", type=int, default=16, metavar="N", help="processes at a time (default: %(default)s)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
