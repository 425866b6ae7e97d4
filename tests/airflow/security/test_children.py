"""What the command lines and environments of child processes hold: the name of a variable, never a secret."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from airflow.sdk import DAG

from servicebus_pair.dags.spark_task import JOBS, SparkJobs
from tests.airflow.conftest import CONN_ID, KEY, UNREACHABLE, RunDag, define_connection, states
from tests.airflow.support.database import all_files, database_dump

RECORDING = f"""#!{sys.executable}
import json, os, pathlib, sys
pathlib.Path(os.environ["RECORDED"]).write_text(json.dumps([sys.argv, dict(os.environ)]))
"""


@pytest.mark.usefixtures("fresh_state")
def test_spark_submit_gets_a_reference_and_the_key_in_its_variable_only(
    run_dag: RunDag, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    define_connection(monkeypatch, UNREACHABLE)
    define_connection(monkeypatch, {}, conn_id="spark_default", conn_type="spark", host="local")
    recorded = tmp_path / "recorded.json"
    monkeypatch.setenv("RECORDED", str(recorded))
    binary = tmp_path / "spark-submit"
    binary.write_text(RECORDING)
    binary.chmod(0o700)
    with DAG("submitting", schedule=None) as dag:
        task = SparkJobs(servicebus_pair_conn_id=CONN_ID).submit("drain", JOBS / "drain.py", ["--ledger", "ledger"])
        task._spark_binary = str(binary)

    assert states(run_dag(dag)) == {"drain": "success"}, capfd.readouterr().out
    command, environment = json.loads(recorded.read_text())
    printed = capfd.readouterr()
    left = f"{command} {task.__dict__} {printed.out}{printed.err}{database_dump()}"
    assert f"env:AIRFLOW_CONN_{CONN_ID.upper()}" in command
    assert KEY not in left
    assert KEY.encode() not in all_files()
    assert [name for name, value in environment.items() if KEY in value] == [f"AIRFLOW_CONN_{CONN_ID.upper()}"]
