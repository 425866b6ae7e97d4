"""The processes of the demo: two namespaces and Airflow."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psutil

from tests.system.demo.airflow_api import AirflowApi
from tests.system.demo.airflow_process import SCHEDULER, AirflowProcess, pair_connection, spark_connection
from tests.system.demo.layout import Home
from tests.system.demo.namespaces import PRIMARY, SECONDARY, Namespace
from tests.system.demo.ports import PortReservation
from tests.system.demo.processes import Processes, stop_recorded

FIRST_AIRFLOW_PORT = 8080
FAILOVER_SECONDS = 5.0
PING_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Stack:
    home: Home
    ports: PortReservation
    processes: Processes
    primary: Namespace
    secondary: Namespace
    airflow: AirflowProcess

    @classmethod
    def create(cls, home: Home, *, dags: Path, options: Mapping[str, str] = MappingProxyType({})) -> Stack:
        """Stop the processes and delete the files of an earlier run, and reserve ports.

        :param options: additional Airflow options, each as ``SECTION__OPTION``.
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
                primary,
                secondary,
                failover_interval=FAILOVER_SECONDS,
                ping_primary_interval=PING_SECONDS,
                spool=home.root / "spool",
            ),
            "spark_default": spark_connection(),
        }
        processes = Processes(record=home.processes, logs=home.logs)
        airflow = AirflowProcess(home, dags, connections, port=ports.next_free(FIRST_AIRFLOW_PORT), options=options)
        return cls(home, ports, processes, primary, secondary, airflow)

    def start(self) -> AirflowApi:
        """Start all processes and return a client of the healthy Airflow."""
        for namespace in (self.primary, self.secondary):
            namespace.start(self.processes)
        return self.airflow.start(self.processes)

    def check(self, *, secondary: bool = True) -> None:
        """Raise StartError if a process has exited, except the primary.

        :param secondary: it should be running, too.
        """
        self.airflow.check(self.processes)
        if secondary:
            self.processes.check(self.secondary.process)

    def task_processes(self) -> list[psutil.Process]:
        return self.processes.members(SCHEDULER)
