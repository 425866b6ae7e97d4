"""The pytest fixtures: namespaces in processes that can be killed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

import servicebus_emulator

pytest_plugins = ["pytester"]

PLUGIN = "servicebus_emulator.pytest_plugin"
PROJECT = Path(__file__).parents[2]


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project of its own that has the plugin, whether it is installed here or not."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(PROJECT / "provider"))
    pytester.makeini("[pytest]\naddopts = --strict-markers\nfilterwarnings = ignore::ResourceWarning\n")
    return pytester


def run(inner: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return inner.runpytest_subprocess("-p", PLUGIN, *arguments, timeout=100)


HEAD = """
from datetime import timedelta

import psutil
import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError, ServiceBusServerBusyError
from servicebus_emulator import Fault, FaultKind

def client_of(namespace):
    return ServiceBusClient.from_connection_string(namespace.connection_string, retry_total=0)

def send(namespace, text, path="flights"):
    with client_of(namespace) as client, client.get_queue_sender(path) as sender:
        sender.send_messages(ServiceBusMessage(text), timeout=5)

def receive(namespace, path="flights"):
    with client_of(namespace) as client, client.get_queue_receiver(path) as receiver:
        found = receiver.receive_messages(10, max_wait_time=2)
        for message in found:
            receiver.complete_message(message)
        return [str(message) for message in found]
"""


def test_a_killed_or_frozen_primary_is_restored_with_its_state_while_the_secondary_continues(inner: pytest.Pytester):
    inner.makepyfile(
        HEAD
        + """
@pytest.mark.servicebus(queues=["flights"])
def test_outage(servicebus_pair):
    primary, secondary = servicebus_pair.primary, servicebus_pair.secondary
    assert (primary.name, secondary.name) == ("contoso", "contoso-dr")
    # At the same time: a process is not ready for 0.3 s of processor time.
    created = [psutil.Process(each.process.pid).create_time() for each in (primary, secondary)]
    assert abs(created[1] - created[0]) < 0.25
    secondary.create_queue("flights")
    send(primary, "before")
    primary.kill()
    with pytest.raises(ServiceBusConnectionError):
        send(primary, "during")
    send(secondary, "during")
    primary.restore()
    primary.restore()
    send(primary, "after")
    assert receive(primary) == ["before", "after"]
    assert receive(secondary) == ["during"]

@pytest.mark.servicebus(queues=["flights"])
def test_freeze(servicebus_pair):
    primary = servicebus_pair.primary
    with client_of(primary) as client, client.get_queue_sender("flights") as sender:
        sender.send_messages(ServiceBusMessage("before"))
        primary.freeze()
        with pytest.raises(OperationTimeoutError):
            sender.send_messages(ServiceBusMessage("during"), timeout=1)
        primary.restore()
    assert receive(primary)[0] == "before"
"""
    )
    run(inner).assert_outcomes(passed=2)


def test_each_test_has_its_own_namespace_as_its_marker_describes(inner: pytest.Pytester):
    inner.makepyfile(
        HEAD
        + """
@pytest.mark.servicebus(queues=["flights"], topics={"news": ["all"]}, durable=False,
                        faults=[Fault(kind=FaultKind.SERVER_BUSY, count=1)])
def test_marked(servicebus_namespace):
    with pytest.raises(ServiceBusServerBusyError):
        send(servicebus_namespace, "x")
    send(servicebus_namespace, "x")
    assert servicebus_namespace.faults[0]["strikes"] == 1
    assert servicebus_namespace.health()["subscriptions"] == 1

def test_unmarked(servicebus_namespace):
    assert servicebus_namespace.health()["queues"] == 0
    assert servicebus_namespace.faults == []
    servicebus_namespace.shift_time(timedelta(minutes=2))
"""
    )
    run(inner).assert_outcomes(passed=2)


def test_the_namespace_of_the_next_test_is_ready_when_it_begins(inner: pytest.Pytester):
    inner.makepyfile(
        """
import time

import pytest

def test_first(servicebus_namespace):
    servicebus_namespace.create_queue("flights")
    time.sleep(4)

@pytest.mark.servicebus(queues=["flights"])
def test_second(servicebus_namespace):
    assert servicebus_namespace.health()["queues"] == 1
    servicebus_namespace.kill()
    servicebus_namespace.restore()
    assert servicebus_namespace.health()["queues"] == 1
"""
    )
    found = run(inner, "--durations=0", "--durations-min=0")
    found.assert_outcomes(passed=2)
    setups = {name: float(took) for took, name in re.findall(r"([0-9.]+)s setup +\S+::(\w+)", found.stdout.str())}
    assert setups["test_second"] < 0.5


INVALID_MARKERS = {
    'queue="flights"': "marker servicebus has no 'queue'; allowed: queues, topics, faults, fault_seed, durable",
    'queues="flights"': "marker servicebus: queues is 'flights'; allowed:",
    'faults=["bad"]': "marker servicebus: faults is ['bad']; allowed: a list of Fault",
    '"flights"': "marker servicebus was given ('flights',); allowed by name: queues",
}


def test_an_invalid_marker_is_refused_with_name_and_value(inner: pytest.Pytester):
    tests = [
        f"@pytest.mark.servicebus({marker})\ndef test_{number}(servicebus_namespace): raise AssertionError\n"
        for number, marker in enumerate(INVALID_MARKERS)
    ]
    inner.makepyfile("import pytest\n" + "".join(tests))
    result = run(inner)
    result.assert_outcomes(errors=len(INVALID_MARKERS))
    result.stdout.fnmatch_lines_random([f"*{message.replace('[', '[[]')}*" for message in INVALID_MARKERS.values()])


def test_its_start_timeout_is_validated(inner: pytest.Pytester):
    inner.makepyfile("def test_it(servicebus_namespace): raise AssertionError")
    result = run(inner, "-o", "servicebus_start_timeout=never")
    result.stdout.fnmatch_lines(["*servicebus_start_timeout is 'never'; allowed: a number of seconds above 0*"])


def test_a_project_that_does_not_use_it_imports_nothing():
    code = f"import sys, {PLUGIN}; print(sorted(n for n in sys.modules if n.startswith('servicebus_emulator')))"
    command = [sys.executable, "-c", f"{code}; print({{'aiohttp', 'proton', 'azure.servicebus'}} & set(sys.modules))"]
    ended = subprocess.run(command, cwd=PROJECT / "provider", capture_output=True, text=True, check=True)
    assert ended.stdout == f"['servicebus_emulator', '{PLUGIN}']\nset()\n"


def test_it_is_registered_with_pytest():
    document = tomllib.loads((PROJECT / "provider" / "servicebus_emulator" / "pyproject.toml").read_text())
    registered = document["project"]["entry-points"]["pytest11"]
    assert [hasattr(import_module(place), "servicebus_pair") for place in registered.values()] == [True]


def test_public_names_are_imported_lazily():
    assert all(getattr(servicebus_emulator, name).__name__ == name for name in servicebus_emulator.__all__)
    with pytest.raises(AttributeError, match="allowed: Client, Emulator"):
        _ = servicebus_emulator.Emulater
