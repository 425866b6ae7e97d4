"""The snippets and commands of the documentation work, and its tables match the code."""

from __future__ import annotations

import ast
import asyncio
import importlib
import io
import json
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from servicebus_pair.airflow_runtime.observers import metrics
from servicebus_pair.get_provider_info import get_provider_info
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from tests.airflow.conftest import CONN_ID, PROJECT, Example, Pair, RunDag, results, shared_health, states
from tests.airflow.support.queues import contents, divert

DOCS = PROJECT / "provider" / "docs"
SNIPPET = re.compile(
    r"<!-- run: (\w+) -->\n```python\n(.*?)```(?:\n\n(?:prints\n\n)?```text\n(.*?)```)?", flags=re.DOTALL
)
# Other tests cover the other pages.
PAGES = [
    DOCS / f"{name}.md" for name in ("cost", "failover", "limits", "observability", "operations", "security", "sensors")
]
SNIPPETS = {
    f"{page.stem}-{name}": (code, output) for page in PAGES for name, code, output in SNIPPET.findall(page.read_text())
}
SENSORS = (DOCS / "sensors.md").read_text()
OPERATIONS = (DOCS / "operations.md").read_text()


def run_snippet(name: str) -> str:
    """Run a snippet and return its output."""
    code, _ = SNIPPETS[name]
    with redirect_stdout(io.StringIO()) as output:
        exec(code, {"__name__": "__main__"})  # noqa: S102  our own documentation
    return output.getvalue()


def commands(page: str) -> list[list[str]]:
    blocks = re.findall(r"```console\n(.*?)```", page, flags=re.DOTALL)
    return [shlex.split(line) for block in blocks for line in block.splitlines()]


def test_all_python_snippets_are_covered():
    for page in PAGES:
        dags = 0 if page.name != "sensors.md" else len(re.findall(r"```python\nfrom|<!-- from", SENSORS))
        assert page.read_text().count("```python") == dags + len(SNIPPET.findall(page.read_text())), page.name


@pytest.mark.parametrize("name", [name for name, (_, output) in SNIPPETS.items() if output])
def test_snippet_prints_the_documented_output(name: str):
    assert run_snippet(name) == SNIPPETS[name][1]


def test_quiet_day_matches_the_specification():
    """SPEC section 6: with 10 queues 960 receives a day, 28,800 in 30 days."""
    assert re.search(r"^ +10 +15 min +960 +28,800 ", run_snippet("cost-quiet"), flags=re.MULTILINE)


def test_operations_snippets_inspect_drain_and_redrive(pair: Pair):
    asyncio.run(divert(pair))
    pair.primary.kill()
    down = run_snippet("operations-look")
    pair.primary.start()
    up = run_snippet("operations-look")
    drained = run_snippet("operations-drain")
    again = run_snippet("operations-redrive")

    assert "flights answers: False" in down
    assert "flights answers: True" in up
    for output in (down, up):
        assert "contoso/x-servicebus-transfer/" in output
        assert "{'flights': 3} {}" in output
    assert "DrainReport(moved={'flights': 3}" in drained
    assert "DrainReport(moved={}" in again
    assert len(contents(pair.primary["contoso"], "flights")) == 3


@pytest.mark.slow
def test_runbook_commands_work_in_their_order(
    pair: Pair, run_dag: RunDag, example: Example, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Approval and Spark tasks are marked as success; other tests cover them."""
    monkeypatch.setenv("SERVICEBUS_PAIR_HOME", str(tmp_path))
    triggered: list[str] = []
    asyncio.run(provision(pair))
    for command in commands(OPERATIONS):
        if command[:3] == ["airflow", "connections", "test"]:
            assert ServiceBusPairHook(command[3]).test_connection()[0]
            continue
        if command[:3] == ["airflow", "dags", "unpause"]:
            assert example(command[3]).is_paused_upon_creation is not False
            continue
        if command[:3] == ["airflow", "dags", "pause"]:
            assert example(command[3]).schedule is not None
            continue
        assert command[:3] == ["airflow", "dags", "trigger"]
        form = json.loads(command[5]) if len(command) > 4 else {}
        spark = ".*" if command[3] == "servicebus_pair_at_scale" else "reconcile.*"
        run = run_dag(example(command[3]), run_conf=form, mark_success_pattern=f"approve|{spark}")
        assert set(states(run).values()) <= {"success", "skipped"}, command
        triggered.append(command[3].removeprefix("servicebus_pair_"))
        if form.get("action") == "fail_over":
            assert shared_health("flights").failed_over
            assert shared_health("flights").reason == form["reason"]
        if form.get("action") == "fail_back":
            assert not shared_health("flights").failed_over
        if "outage_minutes" in form:
            assert results(run)["cost"]["planned"]["operations"]["pings"] == form["outage_minutes"] * 60

    assert triggered == ["by_hand", "by_hand", "recovery", "at_scale", "provision", "cost", "cleanup", "drill"]
    assert set(OPERATIONS.split("`")) >= {"NoBacklogQueueError", "BacklogLeftError"}
    assert len(contents(pair.primary["contoso"], "flights")) == 10  # of the drill


ASSET_SCHEDULED = {"notify_of_failover", "drain_what_others_left"}


def test_dags_of_the_sensors_page_run(pair: Pair, run_dag: RunDag, tmp_path: Path):
    from tests.airflow.support.dag_bag import DagBag

    asyncio.run(provision(pair))
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", SENSORS, flags=re.DOTALL)):
        (tmp_path / f"example_{number}.py").write_text(code)
    bag = DagBag(str(tmp_path))

    assert bag.import_errors == {}
    ran = {dag_id: states(run_dag(dag)) for dag_id, dag in bag.dags.items()}
    assert ran == {
        "wait_for_flights": {"flights_accepts_sends": "success"},
        "wait_for_backlog": {"drained": "success"},
        "notify_of_failover": {"notify": "success"},
        "drain_what_others_left": {"drain": "success"},
        "after_the_outage": {"go_on_when_flights_answers": "success"},
    }
    conditions = {
        dag_id: dag.timetable.asset_condition for dag_id, dag in bag.dags.items() if dag_id in ASSET_SCHEDULED
    }
    scheduled = {
        dag_id: {asset.uri for asset in getattr(condition, "objects", [condition])}
        for dag_id, condition in conditions.items()
    }
    assert scheduled == {
        "notify_of_failover": {f"servicebus-pair://{CONN_ID}/{part}" for part in ("failover", "recovery")},
        "drain_what_others_left": {f"servicebus-pair://{CONN_ID}/backlog"},
    }


async def provision(pair: Pair) -> None:
    """Create empty backlog queues."""
    await divert(pair, count=0)


def test_documented_metrics_match_the_code():
    page = (DOCS / "observability.md").read_text()
    listed = {
        name: (kind, {*re.findall(r"`(\w+)`", tags)})
        for name, kind, tags in re.findall(r"^\| `servicebus_pair\.(\w+)` \| (\w+) \| ([^|]*)\|", page, re.MULTILINE)
    }
    table = re.findall(r"^``servicebus_pair\.(\w+)`` +(\w+) +(.*)$", metrics.__doc__ or "", re.MULTILINE)
    documented = {name: (kind, {*re.findall(r"``(\w+)``", tags)}) for name, kind, tags in table}
    sources = [
        PROJECT / "provider/servicebus_pair" / name
        for name in ("airflow_runtime/observers/metrics.py", "ui/listener.py")
    ]
    code = "".join(source.read_text() for source in sources)
    counted = re.findall(r'_count\("(\w+)"|_PREFIX\}([a-z]\w+)|"(failovers|recoveries)"', code)

    assert listed == documented
    assert set(listed) == {name for names in counted for name in names if name}


def test_documented_log_lines_match_the_code():
    """Compared by the keys of each line, in order."""
    section = (DOCS / "observability.md").read_text().partition("## Log lines")[2].partition("\n## ")[0]
    lines = [line for line in re.findall(r"^\| `(.*?)` \|", section, re.MULTILINE) if "='contoso_pair' ..." not in line]
    texts = {
        node.value
        for file in (PROJECT / "provider" / "servicebus_pair").rglob("*.py")
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "%" in node.value
    }
    names = {tuple(re.findall(r"(\w+)=%", text)) for text in texts}

    assert len(lines) >= 7
    assert [line for line in lines if tuple(re.findall(r"(\w+)=", line)) not in names] == []


def test_sensors_triggers_and_assets_are_documented():
    info = get_provider_info()
    modules = [name for each in info["sensors"] for name in each["python-modules"]]
    named = [name for each in modules for name in importlib.import_module(each).__all__ if name.endswith("Sensor")]

    assert len(named) >= 3
    modules = [name for each in info["triggers"] for name in each["python-modules"]]
    triggers = [name for each in modules for name in importlib.import_module(each).__all__ if name.endswith("Trigger")]

    assert len(triggers) == 6
    assert [name for name in (*named, *triggers) if f"`{name}`" not in SENSORS and f"{name}(" not in SENSORS] == []
    for part in ("failover", "recovery", "backlog"):
        assert f"`servicebus-pair://CONN_ID/{part}`" in SENSORS


def test_links_are_valid_and_the_readme_links_to_each_page():
    for page in PAGES:
        named = re.findall(r"\]\(([\w./-]+)\)", page.read_text())
        assert [name for name in named if not (page.parent / name).exists()] == [], page.name
    readme = (PROJECT / "README.md").read_text()
    assert [page.name for page in PAGES if f"(provider/docs/{page.name})" not in readme] == []
