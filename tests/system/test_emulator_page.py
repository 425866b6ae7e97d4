"""The page of the embedded Service Bus tells the truth: every command and every snippet on it is run here."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from servicebus_emulator.config import parse_config
from servicebus_emulator.faults import FaultKind
from servicebus_emulator.metrics import MOST_ENTITIES
from tests.system.demo.layout import PROJECT
from tests.system.demo.processes import Processes
from tests.system.shown import do_what_is_shown

FOLDER = PROJECT / "provider" / "servicebus_emulator"
PAGE = (FOLDER / "README.md").read_text()
BLOCKS = re.findall(r"(?:<!-- (\w+): (\S+) -->\n)?```(\w+)\n(.*?)```", PAGE, flags=re.DOTALL)
FILES = {name: text for kind, name, _, text in BLOCKS if kind == "file"}
CONSOLE = [text.splitlines() for _, _, language, text in BLOCKS if language == "console"]
PYTHON = [(name, text) for _, name, language, text in BLOCKS if language == "python"]
ALONE = [text for name, text in PYTHON if name == "" and "def test_" not in text]
WITH_A_SERVER = [(name, text) for name, text in PYTHON if name != ""]
TESTS = [text for _, text in PYTHON if "def test_" in text]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the files that the page shows."""
    home = tmp_path / "home"
    home.mkdir()
    for name, text in FILES.items():
        (home / name).write_text(text)
    return home


def python(*arguments: str, cwd: Path, **environment: str) -> str:
    """Run Python as a reader would, and return what it printed."""
    ended = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_nothing_on_the_page_is_left_out_here() -> None:
    assert len(CONSOLE) == PAGE.count("```console") > 0
    assert len(ALONE) + len(WITH_A_SERVER) + len(TESTS) == PAGE.count("```python") > 0


@pytest.mark.parametrize("lines", CONSOLE, ids=[lines[0] for lines in CONSOLE])
def test_a_command_shown_works(processes: Processes, folder: Path, lines: list[str]) -> None:
    do_what_is_shown(lines, processes=processes, cwd=folder)


@pytest.mark.parametrize(("config", "text"), WITH_A_SERVER, ids=[name for name, _ in WITH_A_SERVER])
def test_a_snippet_runs_against_the_command_shown(processes: Processes, folder: Path, config: str, text: str) -> None:
    shown = do_what_is_shown([f"servicebus-emulator --config {config}"], processes=processes, cwd=folder)
    assert "UA1714 is late" in python("-c", shown.translated(text), cwd=folder)


@pytest.mark.parametrize("text", ALONE, ids=[str(number) for number in range(len(ALONE))])
def test_a_snippet_runs_by_itself(folder: Path, text: str) -> None:
    assert python("-c", text, cwd=folder) in {"1\n", "0\n", "busy, as it should be\n"}


@pytest.mark.parametrize("text", TESTS, ids=[str(number) for number in range(len(TESTS))])
def test_the_tests_shown_pass(folder: Path, text: str) -> None:
    (folder / "test_shown.py").write_text(text)
    plugin = ["-p", "servicebus_emulator.pytest_plugin", "-p", "no:cacheprovider", "--strict-markers"]
    assert "2 passed" in python("-m", "pytest", *plugin, cwd=folder, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")


def test_the_files_shown_are_what_they_say() -> None:
    (namespace,) = parse_config(FILES["config.json"])
    assert [queue.path for queue in namespace.queues] == ["flights", "gates"]
    assert {fault["kind"] for fault in json.loads(FILES["faults.json"])} == {"server-busy", "latency"}


def test_the_table_of_faults_has_each_kind_once_and_no_other() -> None:
    rows = re.findall(r"^\| (`[^|]+`) \|.+\|.+\|.+\|$", PAGE.partition("## Faults")[2], flags=re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([a-z-]+)`", row)]
    assert sorted(named[: len(FaultKind)]) == sorted(FaultKind)
    assert f"{len(FaultKind)} kinds of" in PAGE.replace("\n", " ")
    assert f"in {len(FaultKind)} ways" in (PROJECT / "README.md").read_text()
    assert f"{MOST_ENTITIES} entities" in PAGE


def test_what_it_takes_alone_is_its_extra_and_what_the_whole_project_brings() -> None:
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    *_, command = [line for line in PAGE.splitlines() if line.startswith("pip install '")]
    shown = [word for word in shlex.split(command) if ">=" in word]
    served_with = [each for each in project["dependencies"] if each.startswith("aiohttp")]
    assert sorted(shown) == sorted([*served_with, *project["optional-dependencies"]["emulator"]])


def test_what_the_page_links_to_is_there_and_the_readme_links_to_it() -> None:
    linked = re.findall(r"\]\(([\w./-]+)\)", PAGE)
    assert linked
    assert [name for name in linked if not (FOLDER / name).exists()] == []
    assert "provider/servicebus_emulator/README.md" in (PROJECT / "README.md").read_text()
