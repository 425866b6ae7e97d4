"""Every command and snippet of the emulator's README works."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from servicebus_emulator.faults import FaultKind
from servicebus_emulator.metrics import MAX_ENTITY_SERIES
from tests.system.demo.layout import PROJECT
from tests.system.demo.processes import Processes
from tests.system.doc_commands import run_commands

FOLDER = PROJECT / "provider" / "servicebus_emulator"
README = (FOLDER / "README.md").read_text()
BLOCKS = re.findall(r"(?:<!-- (\w+): (\S+) -->\n)?```(\w+)\n(.*?)```", README, flags=re.DOTALL)
FILES = {name: text for kind, name, _, text in BLOCKS if kind == "file"}
CONSOLE = [text.splitlines() for _, _, language, text in BLOCKS if language == "console"]
PYTHON = [(name, text) for _, name, language, text in BLOCKS if language == "python"]
STANDALONE_SNIPPETS = [text for name, text in PYTHON if name == "" and "def test_" not in text]
SNIPPETS_WITH_SERVER = [(name, text) for name, text in PYTHON if name != ""]
TESTS = [text for _, text in PYTHON if "def test_" in text]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files of the README."""
    home = tmp_path / "home"
    home.mkdir()
    for name, text in FILES.items():
        (home / name).write_text(text)
    return home


def python(*arguments: str, cwd: Path, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_all_commands_and_snippets_are_covered() -> None:
    assert len(CONSOLE) == README.count("```console") > 0
    assert len(STANDALONE_SNIPPETS) + len(SNIPPETS_WITH_SERVER) + len(TESTS) == README.count("```python") > 0


@pytest.mark.parametrize("lines", CONSOLE, ids=[lines[0] for lines in CONSOLE])
def test_command_works(processes: Processes, folder: Path, lines: list[str]) -> None:
    run_commands(lines, processes=processes, cwd=folder)


@pytest.mark.parametrize(("config", "text"), SNIPPETS_WITH_SERVER, ids=[name for name, _ in SNIPPETS_WITH_SERVER])
def test_snippet_runs_against_the_server(processes: Processes, folder: Path, config: str, text: str) -> None:
    ports = run_commands([f"servicebus-emulator --config {config}"], processes=processes, cwd=folder)
    assert "UA1714 is late" in python("-c", ports.substitute(text), cwd=folder)


@pytest.mark.parametrize("text", STANDALONE_SNIPPETS, ids=[str(number) for number in range(len(STANDALONE_SNIPPETS))])
def test_standalone_snippet_runs(folder: Path, text: str) -> None:
    assert python("-c", text, cwd=folder) in {"1\n", "0\n", "busy, as it should be\n"}


@pytest.mark.parametrize("text", TESTS, ids=[str(number) for number in range(len(TESTS))])
def test_example_tests_pass(folder: Path, text: str) -> None:
    (folder / "test_example.py").write_text(text)
    plugin = ["-p", "servicebus_emulator.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers"]
    assert "2 passed" in python("-m", "pytest", *plugin, cwd=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


def test_fault_table_lists_every_kind_once() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|.+\|.+\|.+\|$", README.partition("## Faults")[2], flags=re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
    assert sorted(named[: len(FaultKind)]) == sorted(FaultKind)
    assert f"{len(FaultKind)} kinds of" in README.replace("\n", " ")
    assert f"in {len(FaultKind)} ways" in (PROJECT / "README.md").read_text()
    assert f"{MAX_ENTITY_SERIES} entities" in README


def test_install_command_names_the_distribution() -> None:
    (command,) = [line for line in README.splitlines() if line.startswith("pip install ")]
    folder = PROJECT / shlex.split(command)[-1]
    assert tomllib.loads((folder / "pyproject.toml").read_text())["project"]["name"] == "servicebus-emulator"


def test_links_are_valid() -> None:
    linked = re.findall(r"\]\(([\w./-]+)\)", README)
    assert linked
    assert [name for name in linked if not (FOLDER / name).exists()] == []
    assert "provider/servicebus_emulator/README.md" in (PROJECT / "README.md").read_text()
