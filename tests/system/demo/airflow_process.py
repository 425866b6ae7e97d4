"""Airflow with its four components as child processes, on loopback, with SQLite and the LocalExecutor."""

from __future__ import annotations

import base64
import json
import os
import secrets
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from tests.system.demo.airflow_api import AirflowApi
from tests.system.demo.layout import PROJECT, Home
from tests.system.demo.namespaces import PRIMARY, SECONDARY, Namespace
from tests.system.demo.ports import HOST
from tests.system.demo.processes import Processes

SCHEDULER = "airflow-scheduler"
TRIGGERER = "airflow-triggerer"
COMPONENTS = {
    "api-server": ["--host", HOST, "--workers", "1"],
    "scheduler": ["--skip-serve-logs"],  # its log server would listen on every interface
    "dag-processor": [],
    "triggerer": ["--skip-serve-logs"],
}
COMMAND = (sys.executable, "-m", "airflow")
HEALTH_TIMEOUT = 120.0
USER = "admin"


def new_password() -> str:
    return secrets.token_hex(4)


def new_fernet_key() -> str:
    return base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()


@dataclass(frozen=True, slots=True)
class AirflowProcess:
    """The Airflow of one demo; its keys survive the restart of a component.

    :ivar options: additional Airflow options, each as ``SECTION__OPTION``.
    """

    home: Home
    dags: Path
    connections: dict[str, str]
    port: int
    options: Mapping[str, str] = field(default_factory=dict)
    password: str = field(default_factory=new_password, repr=False)
    jwt_secret: str = field(default_factory=partial(secrets.token_hex, 32), repr=False)
    fernet_key: str = field(default_factory=new_fernet_key, repr=False)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def environment(self) -> dict[str, str]:
        home = self.home.airflow
        options = {
            "API__BASE_URL": self.url,
            "API__PORT": str(self.port),
            "API_AUTH__JWT_SECRET": self.jwt_secret,
            "CORE__DAGS_ARE_PAUSED_AT_CREATION": "False",
            "CORE__DAGS_FOLDER": str(self.dags),
            "CORE__EXECUTION_API_SERVER_URL": f"{self.url}/execution/",
            "CORE__EXECUTOR": "LocalExecutor",
            "CORE__FERNET_KEY": self.fernet_key,
            "CORE__LOAD_EXAMPLES": "False",
            "CORE__PARALLELISM": "4",
            "CORE__PLUGINS_FOLDER": str(home / "plugins"),
            "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home / "passwords.json"),
            "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin,viewer:viewer",
            "DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
            "SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.5",
            "USAGE_DATA_COLLECTION__ENABLED": "False",
            # The scheduler fails a deferred task that resumes before the executor noticed its exit (Airflow 3.3.2:
            # up to half of six parallel tasks; none with this interval).
            "WORKERS__MIN_HEARTBEAT_INTERVAL": "1",
            **self.options,
        }
        environment = dict(os.environ)
        environment |= {f"AIRFLOW__{name}": value for name, value in options.items()}
        environment |= {f"AIRFLOW_CONN_{name.upper()}": value for name, value in self.connections.items()}
        environment |= {
            "AIRFLOW_HOME": str(home),
            "NO_PROXY": f"{HOST},localhost",
            "PYTHONUNBUFFERED": "1",
            "SERVICEBUS_PAIR_HOME": str(self.home.root),
            "AIRFLOW__SERVICEBUS_PAIR__REPORTS": str(self.home.root / "output"),
        }
        return environment

    def start(self, processes: Processes) -> AirflowApi:
        """Create the database, start the components, wait until all are healthy, and sign in."""
        self._write_passwords()
        processes.run("airflow-db", [*COMMAND, "db", "migrate"], env=self.environment(), cwd=PROJECT)
        for component in COMPONENTS:
            self.start_component(component, processes)
        api = AirflowApi(self.url, user=USER, password=self.password)
        self._wait_until_healthy(api, processes)
        api.sign_in()
        return api

    def start_component(self, component: str, processes: Processes) -> None:
        """Start or restart one component."""
        command = [*COMMAND, component, *COMPONENTS[component]]
        processes.start(f"airflow-{component}", command, env=self.environment(), cwd=PROJECT)

    def check(self, processes: Processes) -> None:
        """Raise StartError if a component has exited."""
        for component in COMPONENTS:
            processes.check(f"airflow-{component}")

    def _write_passwords(self) -> None:
        passwords = self.home.airflow / "passwords.json"
        passwords.touch(mode=0o600)
        passwords.write_text(json.dumps({USER: self.password, "viewer": new_password()}))

    def _wait_until_healthy(self, api: AirflowApi, processes: Processes) -> None:
        deadline = time.monotonic() + HEALTH_TIMEOUT
        while unhealthy := api.unhealthy_components():
            self.check(processes)
            if time.monotonic() > deadline:
                logs = self.home.logs
                raise TimeoutError(f"not healthy after {HEALTH_TIMEOUT:.0f} s: {', '.join(unhealthy)}; see {logs}")
            time.sleep(0.5)


def pair_connection(
    primary: Namespace,
    secondary: Namespace,
    *,
    failover_interval: float,
    ping_primary_interval: float,
    spool: Path,
) -> str:
    """Return an Airflow connection to the pair as JSON; intervals in seconds."""
    return json.dumps(
        {
            "conn_type": "servicebus_pair",
            "extra": {
                "primary_connection_string": primary.connection_string,
                "primary_namespace": PRIMARY,
                "primary_administration": primary.administration,
                "secondary_connection_string": secondary.connection_string,
                "secondary_namespace": SECONDARY,
                "secondary_administration": secondary.administration,
                "failover_interval": failover_interval,
                "ping_primary_interval": ping_primary_interval,
                "spool": str(spool),
            },
        }
    )


def spark_connection() -> str:
    """Return an Airflow connection to local Spark with two cores as JSON."""
    return json.dumps({"conn_type": "spark", "host": "local[2]", "extra": {"deploy-mode": "client"}})
