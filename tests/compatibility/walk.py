"""What every version of Airflow must do; runs inside an environment and prints a line of JSON for each step."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

PROJECT: Final = Path(__file__).parents[2]
EXAMPLES: Final = PROJECT / "provider" / "servicebus_pair" / "example_dags"
# The only modules that need Spark, which these environments do not have.
_SPARK: Final = "servicebus_pair.spark."
_KEY: Final = "a-key-of-the-matrix"
_CONN_ID: Final = "contoso_pair"
_SECONDS: Final = 300
_FACTORY_ARGUMENTS: Final = {"entities": ["flights"], "ledger": "/nowhere/ledger", "output": "/nowhere/output"}
# Of the processes of Airflow; importing a helper of the tests sets others.
_variables: Final = dict(os.environ)


def modules() -> None:
    """Import every module of the provider."""
    package = importlib.import_module("servicebus_pair")
    names = [
        each.name for each in pkgutil.walk_packages(package.__path__, "servicebus_pair.") if _SPARK not in each.name
    ]
    for name in names:
        importlib.import_module(name)
    assert len(names) > 100


def provider_info() -> None:
    """Find the provider, with every class that it names, and the plugin."""
    from airflow.providers_manager import ProvidersManager

    from servicebus_pair.get_provider_info import get_provider_info
    from servicebus_pair.ui.plugin import ServiceBusPairPlugin

    manager: Any = ProvidersManager
    assert "airflow-provider-servicebus-pair" in manager().providers
    assert {"servicebus_pair", "servicebus_namespace"} <= set(manager().hooks)
    for name in (*get_provider_info()["triggers"][0]["python-modules"], *get_provider_info()["notifications"]):
        module, _, attribute = name.rpartition(".")
        assert (
            importlib.import_module(name)
            if module.endswith("triggers")
            else hasattr(importlib.import_module(module), attribute)
        )
    assert len(ServiceBusPairPlugin().fastapi_apps) == 1


def dags() -> None:
    """Parse the examples, in which every factory makes a DAG, and the demo's."""
    from tests.airflow.support.dag_bag import DagBag

    found: set[str] = set()
    for file in (*sorted(EXAMPLES.glob("*.py")), *sorted((PROJECT / "dags").glob("*.py"))):
        bag = DagBag(str(file))
        assert bag.import_errors == {}, bag.import_errors
        found |= set(bag.dags)
    factories = importlib.import_module("servicebus_pair.dags")
    for each in factories.__all__:
        factory = getattr(factories, each)
        known = inspect.signature(factory).parameters
        given = {name: value for name, value in _FACTORY_ARGUMENTS.items() if name in known}
        assert factory(servicebus_pair_conn_id="another_pair", **given).dag_id.startswith("another_pair_")
    assert len(found) > 10, found


def outage() -> None:
    """Survive an outage under ``airflow dags test``: sends divert and share health, a recovery drains."""
    from servicebus_emulator import EmulatorProcess
    from tests.airflow.support.queues import contents

    home = Path(_variables["AIRFLOW_HOME"])
    (home / "dags").mkdir(exist_ok=True)
    shutil.copy(EXAMPLES / "first_send.py", home / "dags")
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        config = data / "emulator.json"
        queues = [{"Name": "briefings", "Properties": {"RequiresSession": False}}]
        namespaces = [{"Name": "contoso", "Queues": queues}, {"Name": "contoso-dr"}]
        config.write_text(json.dumps({"UserConfig": {"Namespaces": namespaces}}))
        sides = [
            EmulatorProcess([name], data=data / name, config=config, key=_KEY) for name in ("contoso", "contoso-dr")
        ]
        try:
            for side in sides:
                side.start()
            primary, served = sides[0], {"primary": sides[0]["contoso"], "secondary": sides[1]["contoso-dr"]}
            _variables[f"AIRFLOW_CONN_{_CONN_ID.upper()}"] = json.dumps(_connection(served))
            _airflow("db", "migrate")
            _airflow("dags", "test", "first_provision")
            assert "sent=2 of=2 primary=2 diverted=0" in _airflow("dags", "test", "first_send")
            primary.kill()
            assert "sent=2 of=2 primary=0 diverted=2" in _airflow("dags", "test", "first_send")
            # It suspects nothing and waits for nothing, because the one before has shared the failover.
            again = _airflow("dags", "test", "first_send")
            assert "sent=2 of=2 primary=0 diverted=2" in again
            assert "health=failed_over" in again
            assert "health=suspect" not in again
            primary.start()
            assert "moved=4" in _airflow("dags", "test", "first_recovery")
            assert len(contents(primary["contoso"], "briefings")) == 6
        finally:
            for side in sides:
                side.stop()


def _connection(served: dict[str, Any]) -> dict[str, Any]:
    extra: dict[str, Any] = {"failover_interval": 1, "ping_primary_interval": 60, "backlog_queue_count": 2}
    for side, namespace in served.items():
        extra[f"{side}_connection_string"] = namespace.connection_string
        extra[f"{side}_namespace"] = namespace.name
        extra[f"{side}_administration"] = f"{namespace.host}:{namespace.admin_port}"
    return {"conn_type": "servicebus_pair", "extra": extra}


def _airflow(*arguments: str) -> str:
    command = [sys.executable, "-m", "airflow", *arguments]
    done = subprocess.run(command, env=_variables, capture_output=True, text=True, timeout=_SECONDS, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stdout + done.stderr


STEPS: Final[tuple[Callable[[], None], ...]] = (modules, provider_info, dags, outage)


def main() -> int:
    """Take the steps, each even when one before failed."""
    failed = 0
    for step in STEPS:
        reason = ""
        try:
            step()
        except Exception as error:  # noqa: BLE001  reported
            traceback.print_exc()
            reason = f"{type(error).__name__}: {error}"[-600:]
            failed += 1
        print(json.dumps({"step": step.__name__, "passed": reason == "", "reason": reason}), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
