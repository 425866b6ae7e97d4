"""The fast path is taken on the versions that the tests ran with; on others the public one, with one warning."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version

import pytest
from azure.servicebus import __version__

from servicebus_pair.core.sdk._private import capabilities
from servicebus_pair.core.sdk._private.capabilities import PATH_VARIABLE, TESTED_VERSIONS, fast_path, relays

# Imports and names that a newer version may lack, made to fail; then everything that sends and drains is imported.
IMPORT_WITHOUT_PRIVATE_NAMES = """
import sys
import azure.servicebus.aio
for name in list(sys.modules):
    if name.startswith("azure.servicebus._pyamqp") or name.startswith("azure.servicebus._transport"):
        sys.modules[name] = None
from servicebus_pair.core.sdk._private.capabilities import fast_path
import servicebus_pair.core as core
[getattr(core, name) for name in core.__all__]
assert not fast_path()
"""


@pytest.fixture(autouse=True)
def decide_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(PATH_VARIABLE, raising=False)
    fast_path.cache_clear()
    yield
    fast_path.cache_clear()


def test_the_tests_run_with_a_tested_version_on_the_fast_path() -> None:
    assert __version__ == version("azure-servicebus")
    assert __version__ in TESTED_VERSIONS
    assert fast_path()


def test_another_version_takes_the_public_path_with_one_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(capabilities, "__version__", "7.99.0")
    with caplog.at_level(logging.INFO):
        assert [fast_path(), fast_path()] == [False, False]
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "azure-servicebus 7.99.0 is used through its public interface only" in record.getMessage()
    assert TESTED_VERSIONS[-1] in record.getMessage()


def test_a_tested_version_without_a_private_name_takes_the_public_path(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delattr("azure.servicebus._pyamqp.constants.SessionTransferState")
    with caplog.at_level(logging.WARNING):
        assert not fast_path()
    assert "SessionTransferState" in caplog.text


def test_the_variable_selects_the_public_path_without_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(PATH_VARIABLE, "public")
    with caplog.at_level(logging.INFO):
        assert not fast_path()
    (record,) = caplog.records
    assert (record.levelno, PATH_VARIABLE in record.getMessage()) == (logging.INFO, True)


@pytest.mark.parametrize(
    ("value", "fast", "relaying"),
    [("", True, True), ("public", False, False), ("decode", True, False), ("a", True, True), ("z", True, True)],
)
def test_the_variable_compares_ways_and_any_other_value_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, value: str, fast: bool, relaying: bool
) -> None:
    monkeypatch.setenv(PATH_VARIABLE, value)
    assert (fast_path(), relays()) == (fast, relaying)
    monkeypatch.setattr(capabilities, "tracing", lambda: True)
    assert not relays(), "the SDK adds to what it encodes"


def test_nothing_private_is_needed_to_import_the_core() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_WITHOUT_PRIVATE_NAMES], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
