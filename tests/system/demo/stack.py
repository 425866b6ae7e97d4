"""Everything that the demo runs: two namespaces and an Airflow."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from tests.system.demo.airflow_service import SCHEDULER, AirflowService, pair_connection, spark_connection
from tests.system.demo.namespaces import PRIMARY, SECONDARY, Namespace
from tests.system.demo.ports import PortReservation
from tests.system.demo.processes import Processes, stop_recorded

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    import psutil

    from tests.system.demo.layout import Home
    from tests.system.demo.rest import AirflowApi

__all__ = ["Stack"]

FIRST_AIRFLOW_PORT = 8080
FAILOVER_SECONDS = 5.0
PING_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Stack:
    """The parts of one demo."""

    home: Home
    ports: PortReservation
    processes: Processes
    primary: Namespace
    secondary: Namespace
    airflow: AirflowService

    @classmethod
    def lay(cls, home: Home, *, dags: Path, options: Mapping[str, str] = MappingProxyType({})) -> Stack:
        """Remove what an earlier run left, its processes first, and choose the ports of a new one.

        :param options: of Airflow beside those of the demo, each as ``SECTION__OPTION``.
        """
        stop_recorded(home.processes)
        if home.root.exists():
            shutil.rmtree(home.root)
        home.make()
        ports = PortReservation()
        primary = Namespace.on_free_ports(PRIMARY, home=home.root, ports=ports)
        secondary = Namespace.on_free_ports(SECONDARY, home=home.root, ports=ports)
        connections = {
            "contoso_pair": pair_connection(
                primary, secondary, failover_interval=FAILOVER_SECONDS, ping_primary_interval=PING_SECONDS
            ),
            "spark_default": spark_connection(),
        }
        processes = Processes(record=home.processes, logs=home.logs)
        airflow = AirflowService(home, dags, connections, port=ports.next_free(FIRST_AIRFLOW_PORT), options=options)
        return cls(home, ports, processes, primary, secondary, airflow)

    def start(self) -> AirflowApi:
        """Start everything and return the API of a healthy Airflow."""
        for namespace in (self.primary, self.secondary):
            namespace.start(self.processes)
        return self.airflow.start(self.processes)

    def check(self) -> None:
        """Raise StartError when something has ended that should run."""
        self.airflow.check(self.processes)
        self.processes.check(self.secondary.process)

    def task_processes(self) -> list[psutil.Process]:
        """Return the processes of the scheduler, of its tasks and of what these started."""
        return self.processes.members(SCHEDULER)
