"""The commands that the page of Spark shows are carried out, one after another."""

from __future__ import annotations

import importlib
import json
import re
import shlex
import textwrap
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.spark.conftest import Pair
from tests.spark.diverting import own_backlog
from tests.system.demo.layout import PROJECT

PAGE = (PROJECT / "provider" / "docs" / "spark.md").read_text()
# What is named by these lies in the folder of the one who runs the command.
PATHS = {"--table", "--ledger", "--output", "--manifest", "--report", "--metered"}
ROWS = "body,messageId\nshoes,o-1\nhats,o-2\n"


def commands() -> list[list[str]]:
    (block,) = re.findall(r"```console\n(JOBS=.*?)```", PAGE, flags=re.DOTALL)
    return [shlex.split(line) for line in block.splitlines() if line.startswith("spark-submit")]


def here(words: list[str], home: Path, **others: str) -> Iterator[str]:
    for before, word in zip(["", *words], words, strict=False):
        yield str(home / word) if before in PATHS else others.get(word, word)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_the_commands_of_the_page_do_what_it_says(pair: Pair, tmp_path: Path):
    own, queue = own_backlog(pair, tmp_path, f"own-{uuid.uuid4().hex[:8]}"), pair.fresh_queue()
    (tmp_path / "orders.csv").write_text(ROWS)
    own.divert(tmp_path / "ledger", queue, 20)
    ran = []
    for _, program, *words in commands():
        folder, _, name = program.partition("/")
        assert folder == "$JOBS"
        main: Callable[[list[str]], int] = importlib.import_module(
            f"servicebus_pair.spark.jobs.{name.removesuffix('.py')}"
        ).main
        arguments = list(here(words, tmp_path, **{"env:PAIR": own.reference, "orders": queue}))
        assert main(arguments) == 0, name
        ran.append(name)
    assert ran == ["publish.py", "profile_backlog.py", "drain.py", "reconcile.py", "cost.py"]
    assert set(own.arrived(queue)) == {"o-1", "o-2", *(f"{queue}-{number}" for number in range(20))}
    profile, proof, cost = (
        json.loads((tmp_path / name / "summary.json").read_text()) for name in ("profile", "proof", "cost")
    )
    assert profile["messages"] == 20
    assert (proof["totals"]["delivered"], proof["totals"]["lost"]) == (2, 0)
    assert cost["operations"]["diverts"] == 20
    for name in ("profile", "proof", "cost"):
        assert (tmp_path / name / "report.html").exists()


@pytest.mark.parametrize("name", ["publish", "drain", "cost"])
def test_the_page_lists_the_arguments_that_the_program_takes(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        importlib.import_module(f"servicebus_pair.spark.jobs.{name}").main(["--help"])
    taken = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, flags=re.MULTILINE))
    section = PAGE.split(f"\n### `{name}`")[1].split("\n### ")[0]
    told = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `--")]
    assert set(re.findall(r"--[a-z-]+", " ".join(told))) == taken


def test_the_task_that_is_shown_is_the_example_dags():
    shown = re.findall(r"<!-- from (dags/\w+\.py): (\w+) -->\n```python\n(.*?)```", PAGE, flags=re.DOTALL)
    assert [name for _, name, _ in shown] == ["drain"]
    for file, name, text in shown:
        marked = re.search(rf"# \[START {name}\]\n(.*?) *# \[END {name}\]", (PROJECT / file).read_text(), re.DOTALL)
        assert marked is not None
        assert textwrap.dedent(marked[1]) == text
