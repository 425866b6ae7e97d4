"""A secret as any argument of any Spark job is refused before Spark starts, and printed nowhere."""

from __future__ import annotations

import importlib
import pkgutil
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from servicebus_pair.spark import jobs
from servicebus_pair.spark.jobs.command_line import JobParser, fail
from tests.security.canaries import CANARIES, disclosed

PROJECT = Path(__file__).parents[2]
TEXTS = {name: canary for name, canary in CANARIES.items() if isinstance(canary, str)}


def programs() -> list[ModuleType]:
    names = [f"{jobs.__name__}.{each.name}" for each in pkgutil.iter_modules(jobs.__path__)]
    found = [importlib.import_module(name) for name in (*names, "dags.jobs.publish_flights")]
    return [module for module in found if hasattr(module, "main")]


def options_of(program: ModuleType) -> list[str]:
    """Return the options that the program declares."""
    found: list[str] = []

    def record(self: JobParser, *_: Any) -> None:
        found.extend(
            option for action in self._actions for option in action.option_strings if option not in {"-h", "--help"}
        )
        raise SystemExit

    with pytest.MonkeyPatch.context() as patch, suppress(SystemExit):
        patch.setattr(JobParser, "parse_args", record)
        program.main([])
    return found


@pytest.mark.parametrize("program", programs(), ids=lambda module: module.__name__)
def test_no_argument_discloses_a_secret(program: ModuleType, capfd: pytest.CaptureFixture[str]):
    options = options_of(program)
    assert {"--output", "--ledger"} & set(options)
    bad = []
    for canary in TEXTS.values():
        for given in [*([option, canary] for option in options), *([f"{each}={canary}"] for each in options), [canary]]:
            with pytest.raises(SystemExit) as ended:
                program.main(given)
            printed = capfd.readouterr()
            text = printed.out + printed.err
            named = given[0].partition("=")[0] if given != [canary] else "an argument"
            if disclosed(text) or ended.value.code != 2 or f"error: {named} holds" not in text:
                bad.append((given, text))
    assert bad == []


def test_an_unknown_option_with_a_secret_is_not_repeated(capfd: pytest.CaptureFixture[str]):
    parser = JobParser(prog="job")
    parser.add_argument("--tasks", type=int)
    for given in (["--tasks", "a\nb\x1b[2J"], ["--SharedAccessKey=c4nary"], [f"--{TEXTS['key']}"]):
        with pytest.raises(SystemExit):
            parser.parse_args(given)
    fail("job", f"it said: {TEXTS['token']}\nforged\x1b[2J")

    printed = capfd.readouterr().err
    assert not disclosed(printed)
    assert "\x1b" not in printed
    assert not [line for line in printed.splitlines() if line.startswith(("b", "forged"))]
