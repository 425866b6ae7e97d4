"""Clients of other makes against one embedded Service Bus: each takes a walk of steps, in an environment of its own.

An environment is built at its first use, in ``.conformance/clients``; a client that cannot be installed here is
skipped, with the reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from servicebus_emulator import EmulatorProcess
from tests.conformance.certificate import make_identity, trust_environment
from tests.conformance.clients.steps import HOST
from tests.conformance.sdk_source import CACHE

HERE: Final = Path(__file__).parent
PROJECT: Final = HERE.parents[2]
ENVIRONMENTS: Final = CACHE / "clients"
KEY: Final = "a-key-of-the-matrix"
_WALK_SECONDS: Final = 240
_INSTALL_SECONDS: Final = 300
# uamqp connects to the port of the protocol.
_AMQPS: Final = 5671


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """A client.

    :ivar script: its walk.
    :ivar packages: what is installed for it; empty = what the project has.
    :ivar pythons: the interpreters that it may run on, best first; empty = the project's.
    """

    name: str
    script: str
    packages: Sequence[str] = ()
    pythons: Sequence[str] = ()
    arguments: Sequence[str] = ()


@dataclass(slots=True, kw_only=True)
class Walk:
    """What became of one client.

    :ivar version: what was installed.
    :ivar skipped: why it could not be had, or an empty text.
    :ivar steps: the outcome of each step by name: an empty text, or why it failed.
    """

    client: Client
    version: str = ""
    skipped: str = ""
    steps: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> int:
        return sum(reason == "" for reason in self.steps.values())


def known_clients() -> tuple[Client, ...]:
    """Return the clients of the matrix."""
    python = [
        Client(name=f"azure-servicebus {each}", script="walk_servicebus.py", packages=[f"azure-servicebus=={each}"])
        for each in ("7.12.3", "7.14.3", "7.15.0")
    ]
    older = [
        Client(
            name=f"azure-servicebus {each} (uamqp)",
            script="walk_servicebus.py",
            packages=[f"azure-servicebus=={each}", "uamqp", "certifi"],
            pythons=["python3.9", "python3.10", "python3.11"],
            arguments=["uamqp"],
        )
        for each in ("7.4.0", "7.8.3")
    ]
    script = [
        Client(name=f"@azure/service-bus {each}", script="walk_javascript.mjs", packages=[f"@azure/service-bus@{each}"])
        for each in ("7.0.5", "7.5.1", "latest")
    ]
    return (
        *older,
        *python,
        Client(name="azure-servicebus newest", script="walk_servicebus.py", packages=["azure-servicebus"]),
        Client(name="python-qpid-proton, BlockingConnection", script="walk_proton.py"),
        Client(
            name="Celery worker over kombu",
            script="walk_celery.py",
            packages=["celery", "kombu[azureservicebus]", "azure-identity", "certifi"],
        ),
        Client(name="Airflow's official Azure provider", script="walk_airflow.py"),
        *script,
        Client(name="bytes as .NET opens", script="walk_dotnet.py"),
    )


def run_clients(clients: Iterable[Client]) -> list[Walk]:
    """Take the walks one after the other, each against a fresh namespace."""
    walks = []
    with tempfile.TemporaryDirectory(prefix="servicebus-clients-") as name:
        folder = Path(name)
        identity = make_identity(folder)
        environment = _environment() | trust_environment(identity) | {"NODE_EXTRA_CA_CERTS": str(identity.certificate)}
        options = ["--certificate", str(identity.certificate), "--key", str(identity.key)]
        for client in clients:
            walk = Walk(client=client)
            walks.append(walk)
            port = _AMQPS if "uamqp" in client.arguments else None
            try:
                command = _command(walk)
                with EmulatorProcess([HOST.partition(".")[0]], key=KEY, options=options, amqp_port=port) as process:
                    served = process[HOST.partition(".")[0]]
                    _create_entities(served)
                    ports = {"MATRIX_PORT": str(served.amqp_port), "MATRIX_ADMIN_PORT": str(served.admin_port)}
                    _take(walk, command, environment=environment | ports | {"MATRIX_FOLDER": str(_folder(client))})
            except (_Unavailable, RuntimeError, OSError) as error:
                walk.skipped = str(error).strip().splitlines()[-1][:160]
            print(_line(walk), flush=True)
    return walks


def table(walks: Sequence[Walk]) -> str:
    """Return the report for a terminal."""
    lines = ["", f"{'client':40} {'installed':12} steps"]
    lines += [_line(walk) for walk in walks]
    for walk in walks:
        lines += [f"  {walk.client.name}: {name}: {reason}" for name, reason in walk.steps.items() if reason != ""]
    return "\n".join(lines)


def _line(walk: Walk) -> str:
    outcome = f"skipped: {walk.skipped}" if walk.skipped != "" else f"{walk.passed} of {len(walk.steps)}"
    return f"{walk.client.name:40} {walk.version:12} {outcome}"


class _Unavailable(Exception):  # noqa: N818 - a reason to skip, not an error
    """A client cannot be installed here."""


def _create_entities(served: object) -> None:
    served.create_queue("q")  # type: ignore[attr-defined]
    served.create_queue("sessions", requires_session=True)  # type: ignore[attr-defined]
    served.create_topic("t")  # type: ignore[attr-defined]
    served.create_subscription("t", "s")  # type: ignore[attr-defined]


def _take(walk: Walk, command: Sequence[str], *, environment: Mapping[str, str]) -> None:
    try:
        ended = subprocess.run(
            command, env=environment, cwd=PROJECT, capture_output=True, text=True, timeout=_WALK_SECONDS, check=False
        )
        printed, status = ended.stdout, ended.returncode
        complaint = ended.stderr.strip().splitlines()[-1:] or [f"status {status}"]
    except subprocess.TimeoutExpired as error:
        printed, status, complaint = (error.stdout or b"").decode(), 1, [f"no end after {_WALK_SECONDS} s"]
    for line in printed.splitlines():
        with suppress(ValueError):
            report = json.loads(line)
            if isinstance(report, dict) and "step" in report:
                walk.steps[report["step"]] = "" if report["passed"] else report["reason"]
    if status != 0:
        walk.steps["end"] = complaint[0][:300]


def _folder(client: Client) -> Path:
    return ENVIRONMENTS / "".join(letter if letter.isalnum() or letter in ".-" else "-" for letter in client.name)


def _command(walk: Walk) -> list[str]:
    """Build the client's environment if it is not there yet, and return the command of its walk."""
    client, folder = walk.client, _folder(walk.client)
    folder.mkdir(parents=True, exist_ok=True)
    script = str(HERE / client.script)
    if client.script.endswith(".mjs"):
        node = shutil.which("node")
        if node is None or shutil.which("npm") is None:
            raise _Unavailable("there is no Node.js here")
        if not (folder / "node_modules").is_dir():
            _install(
                ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder), *client.packages]
            )
        described = json.loads((folder / "node_modules/@azure/service-bus/package.json").read_text())
        walk.version = described["version"]
        return [node, script]
    if len(client.packages) == 0:
        return [sys.executable, script]
    python = folder / "bin" / "python"
    if not (folder / ".installed").exists():
        _install([_interpreter(client), "-m", "venv", "--clear", str(folder)])
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--only-binary", "uamqp"]
        _install([*pip, *client.packages, "certifi"])
        (folder / ".installed").touch()
    shown = "from importlib.metadata import version; print(version('azure-servicebus'))"
    walk.version = subprocess.run([str(python), "-c", shown], capture_output=True, text=True, check=True).stdout.strip()
    return [str(python), script, *client.arguments]


def _interpreter(client: Client) -> str:
    if len(client.pythons) == 0:
        return sys.executable
    for each in client.pythons:
        found = shutil.which(each)
        # A version manager's shim may exist and still fail.
        if found is not None and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    raise _Unavailable(f"there is none of {', '.join(client.pythons)} here")


def _install(command: Sequence[str]) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise _Unavailable(f"installing it took more than {_INSTALL_SECONDS} s") from error
    if done.returncode != 0:
        raise _Unavailable((done.stderr.strip() or done.stdout.strip()).splitlines()[-1])


def _environment() -> dict[str, str]:
    """Return this process's environment without proxies, so that no request of a walk leaves this machine."""
    kept = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
    kept.pop("VIRTUAL_ENV", None)
    places = [str(PROJECT / "provider"), str(PROJECT)]
    return kept | {"MATRIX_KEY": KEY, "MATRIX_PROJECT": str(PROJECT), "PYTHONPATH": os.pathsep.join(places)}
