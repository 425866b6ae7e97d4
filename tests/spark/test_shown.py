"""What README and the page of the data source show runs as it stands."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from tests.spark.conftest import CANARY, Pair, Session
from tests.system.demo.layout import PROJECT

SHOWN = Path(__file__).with_name("shown.py")


def test_what_is_shown_runs_with_a_pair_from_the_environment(
    session: Session, pair: Pair, capsys: pytest.CaptureFixture[str]
):
    before = len(pair.held("flights"))
    runpy.run_path(str(SHOWN))
    assert len(pair.held("flights")) == before + 2
    assert "|    main|active|" in capsys.readouterr().out
    assert CANARY not in session.event_log()


@pytest.mark.parametrize("page", ["README.md", "provider/docs/spark.md"])
def test_what_is_shown_is_what_runs(page: str):
    marked = re.search(r"# \[START spark\]\n(.*?)# \[END spark\]", SHOWN.read_text(), flags=re.DOTALL)
    assert marked is not None
    assert f"```python\n{marked[1]}```" in (PROJECT / page).read_text()
