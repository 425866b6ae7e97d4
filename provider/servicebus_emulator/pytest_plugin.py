"""Fixtures for pytest: namespaces in processes that a test can kill, freeze and restore.

::

    @pytest.mark.servicebus(queues=["flights"])
    def test_it_survives(servicebus_pair):
        servicebus_pair.primary.kill()
        ...
        servicebus_pair.primary.restore()

Registered by the entry point ``servicebus_emulator``; only this module is imported until a fixture is used. Each
test has its own namespaces. Their state is on disk and survives a kill. While a test runs, the process of the next one
is started.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from servicebus_emulator.testing.process import DedicatedNamespace, DedicatedNamespacePair, EmulatorProcess
    from servicebus_emulator.testing.spare_processes import SpareProcesses

_TIMEOUT: Final = "servicebus_start_timeout"
_LOG_LEVEL: Final = "servicebus_log_level"
_MARKER: Final = "servicebus"
_FIXTURES: Final = frozenset({"servicebus_namespace", "servicebus_pair"})
_SPARES: Final = pytest.StashKey["SpareProcesses"]()
_ALLOWED: Final[Mapping[str, type | tuple[type, ...]]] = {
    "queues": (list, tuple),
    "topics": dict,
    "faults": (list, tuple),
    "fault_seed": int,
    "durable": bool,
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the configuration file."""
    parser.addini(_TIMEOUT, "time limit for the start of an embedded Service Bus, in seconds", default="10")
    parser.addini(_LOG_LEVEL, "its lowest log level: DEBUG, INFO, WARNING or ERROR", default="WARNING")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker."""
    config.addinivalue_line(
        "markers",
        f"{_MARKER}(queues=[...], topics={{topic: [subscription, ...]}}, faults=[...], fault_seed=0, durable=True):"
        " the initial state of the namespace of servicebus_namespace, or of the primary of servicebus_pair",
    )


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop the process that was started for a test that never came."""
    spares = config.stash.get(_SPARES, None)
    if spares is not None:
        spares.close()


@pytest.fixture
def servicebus_namespace(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DedicatedNamespace]:
    """An embedded Service Bus with one namespace, in its own process.

    Connect with its ``connection_string``; create entities, set faults, shift its time, kill, freeze and restore it.
    """
    with ExitStack() as running:
        yield _start(running, "contoso", request=request, folders=tmp_path_factory, marked=True)


@pytest.fixture
def servicebus_pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DedicatedNamespacePair]:
    """A primary and a secondary namespace, each in its own process."""
    from servicebus_emulator.testing.process import DedicatedNamespacePair

    # Both start at the same time.
    _spares(request, tmp_path_factory).begin("contoso-dr")
    with ExitStack() as running:
        primary = _start(running, "contoso", request=request, folders=tmp_path_factory, marked=True)
        secondary = _start(running, "contoso-dr", request=request, folders=tmp_path_factory, marked=False)
        yield DedicatedNamespacePair(primary=primary, secondary=secondary)


def _start(
    running: ExitStack,
    name: str,
    *,
    request: pytest.FixtureRequest,
    folders: pytest.TempPathFactory,
    marked: bool,
) -> DedicatedNamespace:
    from servicebus_emulator.testing.process import DedicatedNamespace

    wanted = _wanted(request) if marked else {}
    # What a process starts with cannot be given to one that runs.
    own = {each: wanted[each] for each in ("faults", "fault_seed", "durable") if each in wanted}
    if len(own) > 0:
        process = _process(name, request.config, folders, **own)
        running.callback(process.stop)
        process.start(timeout=_seconds(request.config.getini(_TIMEOUT)))
    else:
        process = _spares(request, folders).take(name, is_last=_is_last(request))
        running.callback(process.stop)
    namespace = DedicatedNamespace.of(process, name=name)
    for path in wanted.get("queues", ()):
        namespace.create_queue(path)
    for topic, subscriptions in wanted.get("topics", {}).items():
        namespace.create_topic(topic)
        for subscription in subscriptions:
            namespace.create_subscription(topic, subscription)
    return namespace


def _spares(request: pytest.FixtureRequest, folders: pytest.TempPathFactory) -> SpareProcesses:
    from servicebus_emulator.testing.spare_processes import SpareProcesses

    config = request.config
    if _SPARES not in config.stash:
        timeout = _seconds(config.getini(_TIMEOUT))
        config.stash[_SPARES] = SpareProcesses(lambda name: _process(name, config, folders), timeout=timeout)
    return config.stash[_SPARES]


def _process(
    name: str, config: pytest.Config, folders: pytest.TempPathFactory, *, durable: bool = True, **options: Any
) -> EmulatorProcess:
    from servicebus_emulator.testing.process import EmulatorProcess

    data = folders.mktemp(_MARKER) if durable else None
    level = config.getini(_LOG_LEVEL)
    return EmulatorProcess([name], data=data, allow_time_shift=True, log_level=level, **options)


def _is_last(request: pytest.FixtureRequest) -> bool:
    """Return whether no later test of the session uses these fixtures."""
    items = request.session.items
    following = items[items.index(request.node) + 1 :] if request.node in items else []
    return not any(_FIXTURES.intersection(getattr(item, "fixturenames", ())) for item in following)


def _wanted(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the arguments of the nearest marker."""
    from servicebus_emulator import Fault

    marker = request.node.get_closest_marker(_MARKER)
    if marker is None:
        return {}
    if len(marker.args) > 0:
        raise pytest.UsageError(f"marker {_MARKER} was given {marker.args!r}; allowed by name: {', '.join(_ALLOWED)}")
    for name, value in marker.kwargs.items():
        allowed = _ALLOWED.get(name)
        if allowed is None:
            raise pytest.UsageError(f"marker {_MARKER} has no {name!r}; allowed: {', '.join(_ALLOWED)}")
        if not isinstance(value, allowed):
            raise pytest.UsageError(f"marker {_MARKER}: {name} is {value!r}; allowed: {allowed}")
        if name == "faults" and not all(isinstance(each, Fault) for each in marker.kwargs[name]):
            raise pytest.UsageError(f"marker {_MARKER}: faults is {value!r}; allowed: a list of Fault")
    return dict(marker.kwargs)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise pytest.UsageError(f"{_TIMEOUT} is {text!r}; allowed: a number of seconds above 0")
    return seconds
