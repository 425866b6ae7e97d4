"""Every snippet and command of the README works, and its snippets equal the example DAGs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
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
    [(_, _, text)] = blocks("python", quoted=False)
    done = subprocess.run(
        [sys.executable, "-c", text], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "SendResult(primary=1, diverted=0" in done.stdout
    assert "True" in done.stdout.splitlines()


NAMESPACES, CONNECTION = (text for _, _, text in blocks("json", quoted=False))


def test_example_connection_is_valid() -> None:
    settings = read_pair_settings(json.loads(CONNECTION)["extra"])
    assert (settings.primary.namespace, settings.secondary.administration) == ("contoso", "127.0.0.1:5301")


EMULATOR = [text.splitlines() for _, _, text in blocks("console", quoted=False) if "servicebus-emulator" in text]


@pytest.mark.parametrize("lines", EMULATOR, ids=[lines[0] for lines in EMULATOR])
def test_emulator_commands_work(processes: Processes, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "namespaces.json").write_text(NAMESPACES)
    run_commands(lines, processes=processes, cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_quick_start_reaches_a_send_that_survives_an_outage(processes: Processes, tmp_path: Path) -> None:
    """Step by step as the section says, except the installation, which test_distribution tests."""
    section = README.partition("## From nothing to a send that survives")[2].partition("\n## ")[0]
    (tmp_path / "namespaces.json").write_text(NAMESPACES)
    install, serve, *steps = re.findall(r"```console\n(.*?)```", section, flags=re.DOTALL)
    assert '"$CLONE/provider/servicebus_emulator" "$CLONE"' in install
    ports = run_commands(serve.splitlines(), processes=processes, cwd=tmp_path)
    (tmp_path / "pair.json").write_text(with_actual_ports(CONNECTION, ports))
    (tmp_path / "airflow" / "dags").mkdir(parents=True)
    first_send = "provider/servicebus_pair/example_dags/first_send.py"
    snippets = [text for source, _, text in blocks("python", quoted=True) if source == first_send]
    (tmp_path / "airflow" / "dags" / "first_send.py").write_text("\n".join(snippets))

    # One shell for all steps, because they share variables.
    done = subprocess.run(
        ["/bin/bash", "-c", with_actual_ports("set -e\n" + "\n".join(steps), ports)],
        cwd=tmp_path,
        # Without the settings of the Airflow that other tests use in this process.
        env={name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    output = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert done.returncode == 0, output
    at_work, out, back = (
        output.find(shown)
        for shown in ("sent=2 of=2 primary=2 diverted=0", "sent=2 of=2 primary=0 diverted=2", "moved=2 dead_lettered=0")
    )
    assert 0 < at_work < output.find("health=failed_over") < out < back, output
    assert len(re.findall("DagRun Finished: .* state=success, run_type=manual", output)) == 4, output
    for shown in ("entity=briefings sent=2 of=2 primary=2 diverted=0", "primary=0 diverted=2", "moved=2"):
        assert shown in section


def with_actual_ports(text: str, ports: CommandPorts) -> str:
    """Replace the documented ports of both namespaces."""
    second = CommandPorts(amqp_port=ports.amqp_port + 1, admin_port=ports.admin_port + 1)
    return ports.substitute(text.replace("5673", str(second.amqp_port)).replace("5301", str(second.admin_port)))


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
