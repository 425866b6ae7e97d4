"""The two embedded Service Bus namespaces, each in its own process, so that one can be killed."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

from servicebus_emulator import RemoteNamespace
from servicebus_emulator.security.settings import KEY_VARIABLE
from tests.system.demo.layout import PROJECT
from tests.system.demo.ports import HOST, PortReservation
from tests.system.demo.processes import Processes

PRIMARY = "contoso"
SECONDARY = "contoso-dr"
FIRST_AMQP_PORT = 25672
FIRST_ADMIN_PORT = 25300
KEY = "loopback-only-4f1d0c6be2"
READY_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class Namespace:
    name: str
    home: Path
    amqp_port: int
    admin_port: int

    @classmethod
    def on_free_ports(cls, name: str, *, home: Path, ports: PortReservation) -> Namespace:
        """Reserve ports, which survive a restart."""
        return cls(name, home, ports.next_free(FIRST_AMQP_PORT), ports.next_free(FIRST_ADMIN_PORT))

    @property
    def connection_string(self) -> str:
        """Connection string for the Azure SDK; its key is valid for this loopback port only."""
        key = f"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={KEY}"
        return f"Endpoint=sb://{HOST}:{self.amqp_port};{key};UseDevelopmentEmulator=true;"

    @property
    def administration(self) -> str:
        """Address of the administration API, host:port."""
        return f"{HOST}:{self.admin_port}"

    @property
    def served(self) -> RemoteNamespace:
        """Control interface of the namespace, over HTTP."""
        return RemoteNamespace(
            name=self.name,
            host=HOST,
            amqp_port=self.amqp_port,
            admin_port=self.admin_port,
            ca_file=self.home / self.name / "ca.pem",
            key=KEY,
        )

    @property
    def process(self) -> str:
        return f"servicebus-{self.name}"

    def start(self, processes: Processes) -> None:
        """Start the process and wait until it is ready."""
        config = self.home / "emulator.json"
        config.write_text(json.dumps(configuration(), indent=2))
        log = processes.log(self.process)
        seen = log.stat().st_size if log.exists() else 0
        arguments = {
            "--config": str(config),
            "--namespace": self.name,
            "--host": HOST,
            "--amqp-port": str(self.amqp_port),
            "--admin-port": str(self.admin_port),
            "--data": str(self.home / self.name),
        }
        command = [sys.executable, "-u", "-m", "servicebus_emulator"]
        command += [word for option in arguments.items() for word in option]
        processes.start(self.process, command, env={**os.environ, KEY_VARIABLE: KEY}, cwd=PROJECT)
        processes.wait_for_line(self.process, "ready", after=seen, seconds=READY_TIMEOUT)


def configuration() -> dict[str, object]:
    """Return both namespaces in the configuration format of Microsoft's emulator."""
    queues: list[dict[str, object]] = [
        {"Name": name, "Properties": {}} for name in ("flights", "statistics", "briefings")
    ]
    topic = {"Name": "delays", "Properties": {}, "Subscriptions": [{"Name": "all", "Properties": {}}]}
    primary = {"Name": PRIMARY, "Queues": queues, "Topics": [topic]}
    return {"UserConfig": {"Namespaces": [primary, {"Name": SECONDARY, "Queues": [], "Topics": []}]}}
