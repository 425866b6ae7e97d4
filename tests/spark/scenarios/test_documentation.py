"""The commands and examples in docs/spark.md, and the examples in README, run as they are."""

from __future__ import annotations

import importlib
import re
import runpy
import shlex
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.spark.conftest import CANARY, Pair, Session
from tests.spark.support.job_files import read_summary
from tests.spark.support.own_backlog import own_backlog
from tests.system.demo.layout import PROJECT

PAGE = (PROJECT / "provider" / "docs" / "spark.md").read_text()
EXAMPLE = Path(__file__).parents[1] / "support" / "documented_example.py"
# The values of these options are paths relative to the working directory.
PATH_OPTIONS = {"--table", "--ledger", "--output", "--manifest", "--report", "--metered"}
# Tested with URLs here, and with folders by each job.
LOCATION_OPTIONS = {"--ledger", "--output"}
ROWS = "body,messageId\nshoes,o-1\nhats,o-2\n"


def commands() -> list[list[str]]:
    (block,) = re.findall(r"```console\n(JOBS=.*?)```", PAGE, flags=re.DOTALL)
    return [shlex.split(line) for line in block.splitlines() if line.startswith("spark-submit")]


def localized(words: list[str], folder: Path, **replacements: str) -> Iterator[str]:
    for before, word in zip(["", *words], words, strict=False):
        path = (folder / word).as_uri() if before in LOCATION_OPTIONS else str(folder / word)
        yield path if before in PATH_OPTIONS else replacements.get(word, word)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_documented_commands_run(pair: Pair, tmp_path: Path):
    own, queue = own_backlog(pair, tmp_path), pair.fresh_queue()
    (tmp_path / "orders.csv").write_text(ROWS)
    own.divert(tmp_path / "ledger", queue, 20)
    jobs = []
    for _, program, *words in commands():
        folder, _, name = program.partition("/")
        assert folder == "$JOBS"
        main: Callable[[list[str]], int] = importlib.import_module(
            f"servicebus_pair.spark.jobs.{name.removesuffix('.py')}"
        ).main
        arguments = list(localized(words, tmp_path, **{"env:PAIR": own.reference, "orders": queue}))
        assert main(arguments) == 0, name
        jobs.append(name)
    assert jobs == ["publish.py", "profile_backlog.py", "drain.py", "reconcile.py", "cost.py", "compact.py"]
    assert set(own.arrived(queue)) == {"o-1", "o-2", *(f"{queue}-{number}" for number in range(20))}
    profile, proof, cost = (read_summary(tmp_path / name) for name in ("profile", "proof", "cost"))
    assert profile["messages"] == 20
    assert (proof["totals"]["delivered"], proof["totals"]["lost"]) == (2, 0)
    assert cost["operations"]["diverts"] == 20
    for name in ("profile", "proof", "cost"):
        assert (tmp_path / name / "report.html").exists()


@pytest.mark.parametrize("name", ["publish", "drain", "reconcile", "cost", "compact"])
def test_documented_arguments_match_the_parser(name: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        importlib.import_module(f"servicebus_pair.spark.jobs.{name}").main(["--help"])
    accepted = set(re.findall(r"^  (--[a-z-]+)", capsys.readouterr().out, flags=re.MULTILINE))
    section = PAGE.split(f"\n### `{name}`")[1].split("\n### ")[0]
    listed = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `--")]
    assert set(re.findall(r"--[a-z-]+", " ".join(listed))) == accepted


def test_documented_example_runs_with_a_pair_from_the_environment(
    session: Session, pair: Pair, capsys: pytest.CaptureFixture[str]
):
    before = len(pair.peek("flights"))
    names = runpy.run_path(str(EXAMPLE))
    assert len(pair.peek("flights")) == before + 4
    assert {found.content.body for found in pair.peek("briefings")} >= {b"AA1 was late", b"UA2 was not"}
    assert len(list(Path(names["home"]).glob("manifests/*/0.json"))) == 1
    assert re.search(r"\|\s+main\|\s*active\|", capsys.readouterr().out), "the column width depends on other tests"
    assert CANARY not in session.event_log()


@pytest.mark.parametrize(
    ("page", "source", "part"),
    [
        ("README.md", EXAMPLE, "spark"),
        ("provider/docs/spark.md", EXAMPLE, "spark"),
        ("provider/docs/spark.md", EXAMPLE, "collect"),
        ("provider/docs/spark.md", EXAMPLE, "streaming"),
        ("provider/docs/spark.md", EXAMPLE, "receiving"),
        ("provider/docs/spark.md", EXAMPLE, "rejecting"),
        ("provider/docs/spark.md", PROJECT / "provider" / "servicebus_pair" / "dags" / "at_scale.py", "spark_drain"),
    ],
)
def test_documented_example_matches_its_source(page: str, source: Path, part: str):
    marked = re.search(rf"# \[START {part}\]\n(.*?) *# \[END {part}\]", source.read_text(), flags=re.DOTALL)
    assert marked is not None
    assert f"```python\n{textwrap.dedent(marked[1])}```" in (PROJECT / page).read_text()


def test_documented_sql_runs(spark: SparkSession, pair: Pair):
    (statements,) = re.findall(r"```sql\n(.*?)```", PAGE, flags=re.DOTALL)
    queue = pair.fresh_queue()
    try:
        results = [spark.sql(statement) for statement in statements.replace("'flights'", f"'{queue}'").split(";")]
        rows = [("AA1 was late", "active"), ("UA2 was not", "active")]
        for result in (results[-3], results[-1]):
            assert [tuple(row) for row in result.collect()] == rows
        of_jvm = spark._jsparkSession.read().format("servicebus").option("credential", "env:PAIR")  # as Scala does
        assert of_jvm.option("entity", queue).load().count() == len(rows)
        with pytest.raises(AnalysisException, match="give them in the statement, as in SELECT"):
            spark.sql("SELECT * FROM queue").collect()
    finally:
        for table in ("outbox", "queue"):
            spark.sql(f"DROP TABLE IF EXISTS {table}")
