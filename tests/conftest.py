from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import certifi
import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer  # type: ignore[import-untyped]

from tests.examples import how_many
from tests.leaks import collect_leaks
from tests.shares import Shares, longest_first

ROOT = Path(__file__).parents[1]

# Eight workers share two processors, so the time that an example or its generation takes says nothing about the code.
settings.register_profile(
    "shared", deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=how_many(100)
)
settings.load_profile("shared")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    longest_first(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Shares:
    """Return our scheduler for every ``--dist``: it knows which tests share fixtures."""
    return Shares(config, log)


def pytest_collection_finish() -> None:
    """Exclude what is imported and collected from garbage collection: searching it for leaks takes 0.2 s each time."""
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _one_authority(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Trust a single certificate authority.

    azure-servicebus reads all of certifi's for each connection, even without TLS, which costs 15 ms of CPU. No server
    in these tests is certified by any of them.
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
    """Collect leaked sockets after a test that broke connections."""
    yield
    collect_leaks()
