from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer  # type: ignore[import-untyped]

from tests.leaks import collect_leaks
from tests.shares import Shares, longest_first

# Eight workers share two processors: how long an example took, or its making, says nothing of the code.
settings.register_profile("shared", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Shares:
    """Whatever way to distribute is asked for: ours knows what tests have in common."""
    return Shares(config, log)


def pytest_collection_finish() -> None:
    """What is imported and collected stays.

    To look through it for the leaks of a test takes a fifth of a second each time.
    """
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust one authority of the world's hundred and more.

    azure-servicebus reads them all anew for each connection, one without TLS too: 15 ms of a test's CPU each time.
    Nobody here is certified by any of them.
    """
    end = "-----END CERTIFICATE-----"
    first, _, _ = Path(certifi.where()).read_text("utf-8").partition(end)
    one = tmp_path_factory.mktemp("authorities") / "one.pem"
    one.write_text(first + end, "utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certifi, "where", lambda: str(one))
        yield


@pytest.fixture
def leaks_collected() -> Iterator[None]:
    """After a test in which connections broke."""
    yield
    collect_leaks()
