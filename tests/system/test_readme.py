"""The README tells the truth: its snippets are the example DAGs', and what it shows is run here."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from servicebus_pair.core import read_pair
from tests.system.demo.layout import PROJECT
from tests.system.demo.namespaces import PRIMARY, SECONDARY, Namespace
from tests.system.demo.ports import PortReservation
from tests.system.demo.processes import Processes
from tests.system.shown import Shown, do_what_is_shown

README = (PROJECT / "README.md").read_text()
BLOCKS = re.findall(r"(?:<!-- from (\S+): (\w+) -->\n)?```(\w+)\n(.*?)```", README, flags=re.DOTALL)


def blocks(language: str, *, quoted: bool) -> list[tuple[str, str, str]]:
    return [(source, name, text) for source, name, kind, text in BLOCKS if kind == language and bool(source) is quoted]


@pytest.mark.parametrize(("source", "name", "text"), blocks("python", quoted=True))
def test_a_quoted_snippet_is_the_example_dags(source: str, name: str, text: str) -> None:
    whole = (PROJECT / source).read_text()
    marked = re.search(rf"# \[START {name}\]\n(.*?)# \[END {name}\]", whole, flags=re.DOTALL)
    assert marked is not None, f"{source} has no snippet {name}"
    assert text == marked[1]


def test_the_library_snippet_runs_as_it_stands(processes: Processes, tmp_path: Path) -> None:
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


def test_the_connection_shown_is_one() -> None:
    settings = read_pair(json.loads(CONNECTION)["extra"])
    assert (settings.primary.namespace, settings.secondary.administration) == ("contoso", "127.0.0.1:5301")


EMULATOR = [text.splitlines() for _, _, text in blocks("console", quoted=False) if "servicebus-emulator" in text]


@pytest.mark.parametrize("lines", EMULATOR, ids=[lines[0] for lines in EMULATOR])
def test_the_embedded_service_bus_does_what_is_shown(processes: Processes, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "namespaces.json").write_text(NAMESPACES)
    do_what_is_shown(lines, processes=processes, cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_stranger_gets_from_nothing_to_a_send_that_survives(processes: Processes, tmp_path: Path) -> None:
    """Step by step as the section says, but for the installation, which tests of the distribution see to."""
    section = README.partition("## From nothing to a send that survives")[2].partition("\n## ")[0]
    (tmp_path / "namespaces.json").write_text(NAMESPACES)
    install, serve, *steps = re.findall(r"```console\n(.*?)```", section, flags=re.DOTALL)
    assert "'airflow-provider-servicebus-pair[emulator]'" in install
    ports = do_what_is_shown(serve.splitlines(), processes=processes, cwd=tmp_path)
    (tmp_path / "pair.json").write_text(translated(CONNECTION, ports))
    (tmp_path / "airflow" / "dags").mkdir(parents=True)
    snippets = [text for source, _, text in blocks("python", quoted=True) if source == "dags/first_send.py"]
    (tmp_path / "airflow" / "dags" / "first_send.py").write_text("\n".join(snippets))

    # The variables of the shell live on from step to step.
    done = subprocess.run(
        ["/bin/bash", "-c", translated("set -e\n" + "\n".join(steps), ports)],
        cwd=tmp_path,
        # Nothing of an Airflow that other tests have in this process.
        env={name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "NO_COLOR": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    told = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout)
    assert done.returncode == 0, told
    at_work, out, back = (
        told.find(shown)
        for shown in ("sent=2 of=2 primary=2 diverted=0", "sent=2 of=2 primary=0 diverted=2", "moved=2 dead_lettered=0")
    )
    assert 0 < at_work < told.find("health=failed_over") < out < back, told
    assert len(re.findall("DagRun Finished: .* state=success, run_type=manual", told)) == 4, told
    for shown in ("entity=briefings sent=2 of=2 primary=2 diverted=0", "primary=0 diverted=2", "moved=2"):
        assert shown in section


def translated(text: str, ports: Shown) -> str:
    """What the page shows, with the ports of both namespaces that are taken here."""
    second = Shown(amqp_port=ports.amqp_port + 1, admin_port=ports.admin_port + 1)
    return ports.translated(text.replace("5673", str(second.amqp_port)).replace("5301", str(second.admin_port)))


def test_every_make_target_named_exists_and_ci_runs_all_tests_and_the_demo() -> None:
    for target in sorted(set(re.findall(r"\bmake ([a-z][a-z-]*)", README))):
        command = ["make", "--dry-run", target]
        found = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
        assert found.returncode == 0, f"make {target}: {found.stderr}"
    ci = (PROJECT / ".ci" / "run").read_text().split("\n")
    assert {"make test-all", "make demo"} <= set(ci)


def test_every_file_named_is_there() -> None:
    named = re.findall(r"`((?:dags|provider|tests|plugins)/[\w./-]+)`", README) + re.findall(
        r"\]\(([\w./-]+)\)", README
    )
    assert named
    assert [name for name in named if not (PROJECT / name).exists()] == []
