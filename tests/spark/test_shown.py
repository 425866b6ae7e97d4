"""What README and the page of the data source show runs as it stands."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import CANARY, Pair, Session
from tests.system.demo.layout import PROJECT

SHOWN = Path(__file__).with_name("shown.py")


def test_what_is_shown_runs_with_a_pair_from_the_environment(
    session: Session, pair: Pair, capsys: pytest.CaptureFixture[str]
):
    before = len(pair.held("flights"))
    names = runpy.run_path(str(SHOWN))
    assert len(pair.held("flights")) == before + 2
    assert {found.content.body for found in pair.held("briefings")} >= {b"AA1 was late", b"UA2 was not"}
    assert len(list(Path(names["home"]).glob("manifests/*/0.json"))) == 1
    assert re.search(r"\|\s+main\|\s*active\|", capsys.readouterr().out), "however wide other states make the column"
    assert CANARY not in session.event_log()


@pytest.mark.parametrize(
    ("page", "part"),
    [("README.md", "spark"), ("provider/docs/spark.md", "spark"), ("provider/docs/spark.md", "streaming")],
)
def test_what_is_shown_is_what_runs(page: str, part: str):
    marked = re.search(rf"# \[START {part}\]\n(.*?)# \[END {part}\]", SHOWN.read_text(), flags=re.DOTALL)
    assert marked is not None
    assert f"```python\n{marked[1]}```" in (PROJECT / page).read_text()


def test_the_sql_that_is_shown_runs(spark: SparkSession, pair: Pair):
    (shown,) = re.findall(r"```sql\n(.*?)```", (PROJECT / "provider/docs/spark.md").read_text(), flags=re.DOTALL)
    queue = pair.fresh_queue()
    try:
        answers = [spark.sql(statement) for statement in shown.replace("'flights'", f"'{queue}'").split(";")]
        assert [tuple(row) for row in answers[-1].collect()] == [("AA1 was late", "active"), ("UA2 was not", "active")]
    finally:
        spark.sql("DROP TABLE IF EXISTS outbox")
