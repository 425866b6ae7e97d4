"""Compares the outcomes of a run with the expected ones."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_EXPECTED: Final = Path(__file__).parent / "expected.toml"
NEEDS_AZURE: Final = "needs Azure"
CANNOT_PASS: Final = "cannot pass anywhere"
_KINDS: Final = {"needs-azure": NEEDS_AZURE, "cannot-pass": CANNOT_PASS, "differs": "differs"}
_UNDECIDED: Final = frozenset({"skipped", NEEDS_AZURE, CANNOT_PASS})


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The outcomes of a run.

    :ivar tests: verdict, seconds and reason of each test.
    :ivar surprises: tests with an unexpected outcome, with an explanation.
    """

    tests: Mapping[str, Mapping[str, Any]]
    surprises: Mapping[str, str]

    @property
    def counts(self) -> Mapping[str, int]:
        return dict(Counter(test["verdict"] for test in self.tests.values()))

    @property
    def is_as_expected(self) -> bool:
        return len(self.surprises) == 0

    def table(self, *, seconds: int) -> str:
        """Return the report for a terminal.

        :param seconds: duration of the run.
        """
        counts = self.counts
        decided = sum(count for kind, count in counts.items() if kind not in _UNDECIDED)
        share = 100 * counts.get("passed", 0) / max(1, decided)
        lines = [f"{count:5}  {kind}" for kind, count in sorted(counts.items())]
        lines += [
            f"{share:5.1f} % of {decided} tests passed, without skipped ones and those that need Azure; {seconds} s"
        ]
        for kind in sorted(counts.keys() - {"passed"}):
            named = {name: test["reason"] for name, test in self.tests.items() if test["verdict"] == kind}
            lines += ["", f"{kind}:", *(f"  {name}\n      {_first_line(reason)}" for name, reason in named.items())]
        if not self.is_as_expected:
            lines += ["", "unexpected outcomes:", *(f"  {name}: {what}" for name, what in self.surprises.items())]
        return "\n".join(lines)


def load_expected() -> Mapping[str, Mapping[str, str]]:
    """Read the tests that are not expected to pass, by kind, with reasons."""
    return tomllib.loads(_EXPECTED.read_text(encoding="utf-8"))


def verdict_on(outcomes: Mapping[str, Mapping[str, Any]], *, expected: Mapping[str, Mapping[str, str]]) -> Verdict:
    """Compare outcomes with the expected ones.

    :param outcomes: outcome, seconds and reason of each test.
    :param expected: by ``needs-azure``, ``cannot-pass`` and ``differs``, the tests that fail, with reasons.
    """
    reasons = {name: (_KINDS[kind], reason) for kind, named in expected.items() for name, reason in named.items()}
    tests: dict[str, Mapping[str, Any]] = {}
    surprises: dict[str, str] = {}
    for name, outcome in outcomes.items():
        kind, reason = outcome["outcome"], outcome["reason"]
        if name in reasons and kind == "failed":
            kind, reason = reasons[name]
        elif name in reasons:
            surprises[name] = f"{kind}, but listed in expected.toml; remove it there"
        elif kind == "failed":
            surprises[name] = f"failed: {_first_line(reason)}"
        tests[name] = {"verdict": kind, "seconds": outcome["seconds"], "reason": reason}
    return Verdict(tests=tests, surprises=surprises)


def _first_line(text: str) -> str:
    return text.partition("\n")[0][:200]
