"""Every snippet and command of the README works, and its snippets equal the example DAGs."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from servicebus_pair.core import read_pair_settings
from tests.system.demo.layout import PROJECT
from tests.system.demo.namespaces import PRIMARY, SECONDARY, Namespace
from tests.system.demo.ports import PortReservation
from tests.system.demo.processes import Processes
from tests.system.doc_commands import CommandPorts, run_commands

README = (PROJECT / "README.md").read_text()
BLOCKS = re.findall(r"(?:<!-- from (\S+): (\w+) -->\n)?```(\w+)\n(.*?)```", README, flags=re.DOTALL)


def blocks(language: str, *, quoted: bool) -> list[tuple[str, str, str]]:
    return [(source, name, text) for source, name, kind, text in BLOCKS if kind == language and bool(source) is quoted]


@pytest.mark.parametrize(("source", "name", "text"), blocks("python", quoted=True))
def test_quoted_snippet_equals_the_example_dag(source: str, name: str, text: str) -> None:
    text_of_source = (PROJECT / source).read_text()
    marked = re.search(rf"# \[START {name}\]\n(.*?)# \[END {name}\]", text_of_source, flags=re.DOTALL)
    assert marked is not None, f"{source} has no snippet {name}"
    assert text == marked[1]


def test_library_snippet_runs(processes: Processes, tmp_path: Path) -> None:
    ports = PortReservation()
    primary = Namespace.on_free_ports(PRIMARY, home=tmp_path, ports=ports)
    secondary = Namespace.on_free_ports(SECONDARY, home=tmp_path, ports=ports)
    primary.start(processes)
    secondary.start(processes)
    environment = {
        "PRIMARY": primary.connection_string,
        "SECONDARY": secondary.connection_string,
        "SECONDARY_ADMINISTRATION": secondary.administration,
    }
    done = subprocess.run(
        [sys.executable, "-c", LIBRARY], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "SendResult(primary=1, diverted=0" in done.stdout
    assert "True" in done.stdout.splitlines()


FIRST_PAIR, SECOND_PAIR, LIBRARY = (text for _, _, text in blocks("python", quoted=False))
NAMESPACES, CONNECTIONS = (text for _, _, text in blocks("json", quoted=False))


def test_example_connection_is_valid() -> None:
    settings = read_pair_settings(json.loads(CONNECTIONS)["contoso_pair"]["extra"])
    assert (settings.primary.namespace, settings.secondary.administration) == ("contoso", "127.0.0.1:5301")


EMULATOR = [text.splitlines() for _, _, text in blocks("console", quoted=False) if "servicebus-emulator" in text]


@pytest.mark.parametrize("lines", EMULATOR, ids=[lines[0] for lines in EMULATOR])
def test_emulator_commands_work(processes: Processes, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "namespaces.json").write_text(NAMESPACES)
    run_commands(lines, processes=processes, cwd=tmp_path)


@dataclass(frozen=True, slots=True)
class Terminal:
    """A shell in the folder of the quick start."""

    folder: Path
    ports: CommandPorts
    airflow_port: int

    def environment(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self.airflow_port}"
        # Without the settings of the Airflow that other tests use in this process.
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        return kept | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "NO_COLOR": "1",
            "AIRFLOW_HOME": str(self.folder / "airflow"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__API__PORT": str(self.airflow_port),
            "AIRFLOW__API__BASE_URL": url,
            "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
            "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        }

    def command(self, commands: str) -> list[str]:
        """Return a shell that runs commands of the page, on other ports and with this environment instead of .venv."""
        typed = commands.replace(". .venv/bin/activate\n", "")
        return ["/bin/bash", "-c", "set -e\n" + with_actual_ports(typed, self.ports)]

    def run(self, commands: str) -> str:
        done = subprocess.run(
            self.command(commands),
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
        assert done.returncode == 0, output
        return output


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_quick_start_survives_an_outage_recovers_by_itself_and_adds_a_pair(
    processes: Processes, tmp_path: Path
) -> None:
    """Step by step as the section says, except the installation, which test_distribution tests."""
    section = README.partition("## From nothing to a send that survives")[2].partition("\n## ")[0]
    (tmp_path / "namespaces.json").write_text(NAMESPACES)
    install, serve, *steps = re.findall(r"```console\n(.*?)```", section, flags=re.DOTALL)
    *by_hand, start_airflow, outage, connect, second_pair = steps
    assert '"$CLONE/provider/servicebus_emulator" "$CLONE"' in install
    ports = run_commands(serve.splitlines(), processes=processes, cwd=tmp_path)
    terminal = Terminal(tmp_path, ports, PortReservation().next_free(28080))
    (tmp_path / "connections.json").write_text(with_actual_ports(CONNECTIONS, ports))
    (tmp_path / "airflow" / "dags").mkdir(parents=True)
    first_send = "provider/servicebus_pair/example_dags/first_send.py"
    snippets = [text for source, _, text in blocks("python", quoted=True) if source == first_send]
    (tmp_path / "airflow" / "dags" / "first_send.py").write_text("\n".join(snippets))

    output = terminal.run("\n".join(by_hand))
    at_work, out, back = (
        output.find(shown)
        for shown in ("sent=2 of=2 primary=2 diverted=0", "sent=2 of=2 primary=0 diverted=2", "moved=2 dead_lettered=0")
    )
    assert 0 < at_work < output.find("health=failed_over") < out < back, output
    assert len(re.findall("DagRun Finished: .* state=success, run_type=manual", output)) == 4, output
    for shown in ("entity=briefings sent=2 of=2 primary=2 diverted=0", "primary=0 diverted=2", "moved=2"):
        assert shown in section
    with closing(sqlite3.connect(tmp_path / "airflow" / "airflow.db")) as database:
        audit_log = str(database.execute("SELECT event, extra FROM log").fetchall())
    assert "connections_import" in audit_log
    assert "SAS_KEY_VALUE" not in audit_log

    pairs = tmp_path / "airflow" / "dags" / "pairs.py"
    pairs.write_text(FIRST_PAIR)
    processes.start("airflow", terminal.command(start_airflow), env=terminal.environment(), cwd=tmp_path)
    processes.wait_for_line("airflow", "Airflow is ready", after=0, seconds=300)
    assert "sent=2 of=2 primary=0 diverted=2" in terminal.run(outage)
    end = time.monotonic() + 300
    while not re.search(r"asset_triggered.*success", terminal.run(outage.splitlines()[-1])):
        assert time.monotonic() < end
    terminal.run(connect)
    pairs.write_text(FIRST_PAIR + SECOND_PAIR)
    output = terminal.run(second_pair)
    assert len(re.findall("DagRun Finished: .* state=success, run_type=manual", output)) == 2, output


def with_actual_ports(text: str, ports: CommandPorts) -> str:
    """Replace the documented ports of all namespaces."""
    for index in range(4):
        text = text.replace(str(5672 + index), str(ports.amqp_port + index))
        text = text.replace(str(5300 + index), str(ports.admin_port + index))
    return text


def test_make_targets_exist_and_ci_runs_all_tests_and_the_demo() -> None:
    for target in sorted(set(re.findall(r"\bmake ([a-z][a-z-]*)", README))):
        command = ["make", "--dry-run", target]
        found = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
        assert found.returncode == 0, f"make {target}: {found.stderr}"
    ci = (PROJECT / ".ci" / "run").read_text().split("\n")
    assert {"make test-all", "make demo"} <= set(ci)


def test_mentioned_files_exist() -> None:
    named = re.findall(r"`((?:dags|provider|tests|plugins)/[\w./-]+)`", README) + re.findall(
        r"\]\(([\w./-]+)\)", README
    )
    assert named
    assert [name for name in named if not (PROJECT / name).exists()] == []
