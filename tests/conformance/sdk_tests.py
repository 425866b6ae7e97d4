"""Runs the SDK's tests in parallel processes, each with its own embedded Service Bus."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.conformance.certificate import make_identity, trust_environment
from tests.conformance.sdk_source import CACHE

HERE: Final = Path(__file__).parent
PROJECT: Final = HERE.parents[1]
MESSAGING: Final = (
    "tests/test_queues.py",
    "tests/test_topic.py",
    "tests/test_subscriptions.py",
    "tests/test_sessions.py",
    "tests/test_list_sessions.py",
    "tests/test_sb_client.py",
    "tests/async_tests",
)
ADMINISTRATION: Final = ("tests/mgmt_tests",)
_TEST_TIMEOUT: Final = 900
# Some asynchronous tests have no asyncio marker.
_SETTINGS: Final = "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"


def run(
    source: Path, *, paths: Sequence[str], only: str | None, workers: int, list_only: bool = False
) -> Mapping[str, Mapping[str, str | float]]:
    """Run tests; return outcome, seconds and reason by test id.

    :param source: the unpacked source distribution.
    :param paths: test files and folders below it.
    :param only: pytest ``-k`` expression; ``None`` for all tests.
    :param workers: number of processes.
    :param list_only: list the tests without running them.
    """
    with tempfile.TemporaryDirectory(prefix="servicebus-conformance-") as name:
        folder = Path(name)
        identity = make_identity(folder)
        settings, record = folder / "pytest.ini", CACHE / "record.json"
        settings.write_text(_SETTINGS)
        record.unlink(missing_ok=True)
        command = [sys.executable, "-m", "pytest", "-c", str(settings), "--rootdir", str(source), "--quiet"]
        command += ["-p", "no:cacheprovider", "-p", "tests.conformance.plugin", "--timeout", str(_TEST_TIMEOUT)]
        command += ["--identity", str(folder), "--record", str(record), "--tb", "short"]
        command += ["--collect-only"] if list_only else ["--numprocesses", str(workers), "--dist", "worksteal"]
        command += [] if only is None else ["-k", only]
        subprocess.run([*command, *paths], cwd=source, env=_environment() | trust_environment(identity), check=False)
        return {} if list_only or not record.exists() else json.loads(record.read_text())


def _environment() -> dict[str, str]:
    """Add our packages and the stubs to PYTHONPATH; remove proxies, so that no request leaves this machine."""
    places = [str(PROJECT / "provider"), str(PROJECT), str(HERE / "stubs")]
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    return kept | {"PYTHONPATH": os.pathsep.join(places)}
