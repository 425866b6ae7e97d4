"""The examples in README and docs/spark.md run as they are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import CANARY, Pair, Session
from tests.system.demo.layout import PROJECT

EXAMPLE = Path(__file__).parents[1] / "support" / "documented_example.py"


def test_documented_example_runs_with_a_pair_from_the_environment(
    session: Session, pair: Pair, capsys: pytest.CaptureFixture[str]
):
    before = len(pair.peek("flights"))
    names = runpy.run_path(str(EXAMPLE))
    assert len(pair.peek("flights")) == before + 2
    assert {found.content.body for found in pair.peek("briefings")} >= {b"AA1 was late", b"UA2 was not"}
    assert len(list(Path(names["home"]).glob("manifests/*/0.json"))) == 1
    assert re.search(r"\|\s+main\|\s*active\|", capsys.readouterr().out), "the column width depends on other tests"
    assert CANARY not in session.event_log()


@pytest.mark.parametrize(
    ("page", "part"),
    [("README.md", "spark"), ("provider/docs/spark.md", "spark"), ("provider/docs/spark.md", "streaming")],
)
def test_documented_example_matches_the_program(page: str, part: str):
    marked = re.search(rf"# \[START {part}\]\n(.*?)# \[END {part}\]", EXAMPLE.read_text(), flags=re.DOTALL)
    assert marked is not None
    assert f"```python\n{marked[1]}```" in (PROJECT / page).read_text()


def test_documented_sql_runs(spark: SparkSession, pair: Pair):
    (statements,) = re.findall(r"```sql\n(.*?)```", (PROJECT / "provider/docs/spark.md").read_text(), flags=re.DOTALL)
    queue = pair.fresh_queue()
    try:
        results = [spark.sql(statement) for statement in statements.replace("'flights'", f"'{queue}'").split(";")]
        assert [tuple(row) for row in results[-1].collect()] == [("AA1 was late", "active"), ("UA2 was not", "active")]
    finally:
        spark.sql("DROP TABLE IF EXISTS outbox")
