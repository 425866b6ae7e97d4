"""pytest plugin for the SDK's tests: an embedded Service Bus in each worker, a record in the controller."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

from tests.conformance.embedded_service import EmbeddedService
from tests.conformance.sdk_source import CACHE

MARKS: Final = ("liveTest", "live_test_only", "playback_test_only")
_ADMINISTRATION: Final = "is_prepared_from_settings"

_service_key: Final = pytest.StashKey[EmbeddedService]()


@dataclass(slots=True)
class Outcome:
    outcome: str = "passed"
    seconds: float = 0.0
    reason: str = ""


@dataclass(slots=True)
class Record:
    """Outcomes by test id, written to a file."""

    path: Path
    tests: dict[str, Outcome] = field(default_factory=dict)

    @pytest.hookimpl
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record one of the three phases of a test."""
        outcome = self.tests.setdefault(report.nodeid, Outcome())
        outcome.seconds = round(outcome.seconds + report.duration, 2)
        expected_failure = getattr(report, "wasxfail", None)
        if report.failed:
            outcome.outcome, outcome.reason = "failed", _last_line(report)
        elif report.skipped and outcome.outcome == "passed":
            outcome.outcome = "skipped"
            outcome.reason = _last_line(report) if expected_failure is None else f"expected to fail: {expected_failure}"
        if report.when == "teardown":
            self._write()

    def _write(self) -> None:
        """Write after every test, so that an interrupted run keeps its outcomes."""
        self.path.write_text(json.dumps({name: asdict(each) for name, each in sorted(self.tests.items())}, indent=1))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, required=True, help="file for the outcomes")
    parser.addoption("--identity", type=Path, required=True, help="folder of the certificate")


def pytest_configure(config: pytest.Config) -> None:
    """Start the service in a worker, or record outcomes in the controller."""
    for mark in MARKS:
        config.addinivalue_line("markers", f"{mark}: one of the SDK's own")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Record(config.getoption("--record")))
        return
    service = EmbeddedService(config.getoption("--identity"))
    service.open()
    config.stash[_service_key] = service
    sys.modules["azure.mgmt.resource"] = _resource_client()


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Stop the service while the controller still waits for this worker."""
    if _service_key in session.config.stash:
        session.config.stash[_service_key].close()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Select live tests and administration tests."""
    live = [item for item in items if _is_live(item)]
    config.hook.pytest_deselected(items=[item for item in items if item not in live])
    items[:] = _balance(live, parts=_worker_count(config), seconds=_seconds_of_last_run())


@pytest.fixture(scope="session")
def test_proxy() -> None:
    """Replace the recorder of the original: nothing is recorded."""


def _worker_count(config: pytest.Config) -> int:
    given = getattr(config, "workerinput", None)
    return 1 if given is None else int(given["workercount"])


def _seconds_of_last_run() -> Mapping[str, float]:
    report = CACHE / "report.json"
    if not report.exists():
        return {}
    return {name: test["seconds"] for name, test in json.loads(report.read_text())["tests"].items()}


def _balance(items: list[pytest.Item], *, parts: int, seconds: Mapping[str, float]) -> list[pytest.Item]:
    """Order tests into parts of similar duration, each with its longest tests first.

    With ``--dist worksteal`` every worker starts with its own part and then steals from the end of other parts.
    """
    longest_first = sorted(items, key=lambda item: (-seconds.get(item.nodeid, 0), item.nodeid))
    return [item for part in range(parts) for item in longest_first[part::parts]]


def _resource_client() -> ModuleType:
    """Return a stub of a module that the tests import but never use."""
    module = ModuleType("azure.mgmt.resource")
    module.ResourceManagementClient = object  # type: ignore[attr-defined]
    return module


def _is_live(item: pytest.Item) -> bool:
    function = getattr(item, "function", None)
    return item.get_closest_marker("liveTest") is not None or hasattr(function, _ADMINISTRATION)


def _last_line(report: Any) -> str:
    if isinstance(report.longrepr, tuple):
        return str(report.longrepr[2])
    crash = getattr(report.longrepr, "reprcrash", None)
    return str(report.longrepr if crash is None else crash.message).strip()[:500]
