"""Each run has a folder of its own below that of its DAG, whose name the template and the page make alike."""

from __future__ import annotations

import re
from types import SimpleNamespace

from hypothesis import example, given
from hypothesis import strategies as st
from jinja2.sandbox import SandboxedEnvironment

from servicebus_pair.airflow_runtime.run_folder import RUN_FOLDER, run_folder


@given(st.text("~+:./273ABEFa-_", min_size=1))
@example("manual__2026-01-01T00:00:00+00:00")
@example(".")
@example("a/../b")
def test_the_folder_of_a_run_is_its_own(run_id: str):
    folder = run_folder(run_id)

    assert re.sub("~(..)", lambda found: chr(int(found[1], 16)), folder) == run_id
    assert not re.search(r"[:+/.]", folder)
    template = SandboxedEnvironment().from_string(RUN_FOLDER)
    assert template.render(dag=SimpleNamespace(dag_id="proof"), run_id=run_id) == f"proof/{folder}"
