"""A real Airflow in a temporary folder, and two embedded namespaces as processes that can be killed.

Airflow reads its settings when it is first imported, so they are set here, before any import of it.
"""

from __future__ import annotations

import atexit
import io
import json
import logging
import os
import secrets
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from servicebus_emulator import EmulatorProcess, RemoteNamespace
from servicebus_pair.core.model.health_state import EntityHealth

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun
    from airflow.sdk import DAG

RunDag: TypeAlias = "Callable[..., DagRun]"
RestartSoon: TypeAlias = Callable[[EmulatorProcess], None]
Example: TypeAlias = Callable[[str], Any]
LogOfFailure: TypeAlias = Callable[[Callable[[], object]], str]

CONN_ID = "contoso_pair"
BACKLOG = [f"contoso/x-servicebus-transfer/{index}" for index in range(2)]
KEY = f"canary-{secrets.token_hex(8)}"  # must appear in no output
# Settings of a pair whose namespaces do not exist.
UNREACHABLE = {
    f"{side}_{name}": value
    for side, port in (("primary", 1), ("secondary", 2))
    for name, value in {
        "connection_string": f"Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=Root;SharedAccessKey={KEY};"
        "UseDevelopmentEmulator=true;",
        "namespace": f"contoso-{side}",
    }.items()
}
HERE = Path(__file__).parent
PROJECT = HERE.parents[1]
EXAMPLES = PROJECT / "provider" / "servicebus_pair" / "example_dags"

AIRFLOW_HOME = Path(tempfile.mkdtemp(prefix="servicebus-pair-airflow-"))
atexit.register(shutil.rmtree, AIRFLOW_HOME, ignore_errors=True)
(AIRFLOW_HOME / "dags").mkdir()
os.environ |= {
    "AIRFLOW_HOME": str(AIRFLOW_HOME),
    "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_hex(32),
    "AIRFLOW__CORE__DAGS_FOLDER": str(AIRFLOW_HOME / "dags"),
    "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,otto:op,una:user,vic:viewer",
    "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(AIRFLOW_HOME / "passwords.json"),
    "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{AIRFLOW_HOME / 'airflow.db'}",
    "AIRFLOW__SERVICEBUS_PAIR__PAGE_PAIRS": "*",
    "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Ignore warnings in Airflow's own packages; warnings in ours fail the test."""
    for item in items:
        if HERE in item.path.parents:
            for text in ("ignore", "error:::servicebus_pair"):
                item.add_marker(pytest.mark.filterwarnings(text))


class CurrentStdout(io.StringIO):
    """Standard output as it is when something is written, so that ``capfd`` captures what Airflow's handler logs."""

    def write(self, text: str) -> int:
        return sys.stdout.write(text)

    def flush(self) -> None:
        sys.stdout.flush()


def _answer_one_request_at_a_time() -> None:
    """Keep two threads of a task that ``dag.test`` runs from losing its connection to the supervisor.

    It is taken away while a request is answered, and stays away if another request begins meanwhile. Where the next
    task began meanwhile, the thread that answers finds the connection of that one and asks there (Airflow 3.1, for a
    Variable): it must not wait for the request that waits for it.
    """
    from airflow.sdk.execution_time.supervisor import InProcessSupervisorComms

    send, answering = InProcessSupervisorComms.send, threading.RLock()

    def send_alone(comms: InProcessSupervisorComms, msg: Any) -> Any:
        if threading.current_thread().name == "AnyIO worker thread":
            return send(comms, msg)
        with answering:
            return send(comms, msg)

    InProcessSupervisorComms.send = send_alone  # type: ignore[method-assign, assignment]


def _build_the_api_once() -> None:
    """Keep the API that answers the tasks of ``dag.test``; before Airflow 3.3 each task builds one, in seconds."""
    from airflow.sdk.execution_time import supervisor

    supervisor.in_process_api_server = cache(supervisor.in_process_api_server)


@pytest.fixture(scope="session")
def airflow_db() -> Path:
    """The folder of an Airflow whose database is ready."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.utils.db import initdb

    initdb()
    DagBundlesManager().sync_bundles_to_db()
    _build_the_api_once()
    _answer_one_request_at_a_time()
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:
            handler.setStream(CurrentStdout())
    return AIRFLOW_HOME


@pytest.fixture
def fresh_state(airflow_db: Path) -> None:  # noqa: ARG001  the tables must exist
    """Delete the health, events and task state that earlier tests left."""
    from airflow.models.asset import AssetEvent
    from airflow.models.variable import Variable
    from airflow.utils.session import create_session
    from sqlalchemy import delete

    from servicebus_pair.airflow_runtime.airflow_version import has

    with create_session() as session:
        session.execute(delete(AssetEvent))
        if not has("asset_state"):
            session.execute(delete(Variable).where(Variable.key.startswith("servicebus_pair/")))
            return
        from airflow.models.asset_state_store import AssetStateStoreModel
        from airflow.models.task_state_store import TaskStateStoreModel

        session.execute(delete(AssetStateStoreModel))
        session.execute(delete(TaskStateStoreModel))


def define_connection(
    patch: pytest.MonkeyPatch, extra: Any, *, conn_id: str = CONN_ID, conn_type: str = "servicebus_pair", **fields: str
) -> None:
    """Define a connection in the environment."""
    connection = {"conn_type": conn_type, "extra": extra, **fields}
    patch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))


def connection_extra(primary: RemoteNamespace, secondary: RemoteNamespace) -> dict[str, Any]:
    """Return the extra of a connection to two embedded namespaces."""
    extra: dict[str, Any] = {"failover_interval": 1, "ping_primary_interval": 1, "backlog_queue_count": len(BACKLOG)}
    for side, served in (("primary", primary), ("secondary", secondary)):
        extra[f"{side}_connection_string"] = served.connection_string
        extra[f"{side}_namespace"] = served.name
        extra[f"{side}_administration"] = f"{served.host}:{served.admin_port}"
    return extra


@dataclass
class Pair:
    """The two namespaces and the connection that describes them."""

    primary: EmulatorProcess
    secondary: EmulatorProcess
    settings: dict[str, Any] = field(default_factory=dict)

    def extra(self) -> dict[str, Any]:
        return {**connection_extra(self.primary["contoso"], self.secondary["contoso-dr"]), **self.settings}


@contextmanager
def _both_processes(folder: Path, *, key: str | None = KEY) -> Iterator[list[EmulatorProcess]]:
    processes = [EmulatorProcess([name], data=folder / name, key=key) for name in ("contoso", "contoso-dr")]
    with ThreadPoolExecutor() as together:
        try:
            list(together.map(EmulatorProcess.start, processes))
            yield processes
        finally:
            list(together.map(EmulatorProcess.stop, processes))


@pytest.fixture(scope="session")
def shared_processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[EmulatorProcess]]:
    """A process for each namespace, for one test after the other: a start takes half a second of processor time."""
    with _both_processes(tmp_path_factory.mktemp("namespaces")) as processes:
        yield processes


def _empty(process: EmulatorProcess, served: RemoteNamespace) -> None:
    """Undo what a test did to a namespace."""
    process.restore()
    served.clear_faults()
    for each in served._ask_json("GET", "/$page/overview")["entities"]:
        if each["kind"] != "subscription":
            served.delete(each["path"])


@pytest.fixture
def pair(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fresh_state: None,  # noqa: ARG001  order
    request: pytest.FixtureRequest,
) -> Iterator[Pair]:
    """Both namespaces, running, and the environment variable of the connection ``contoso_pair``.

    The primary has two empty queues, the secondary nothing. With ``None`` as parameter, the key is the well-known one,
    with which the default client gets tokens.
    """
    with ExitStack() as stack:
        if hasattr(request, "param"):
            processes = stack.enter_context(_both_processes(tmp_path, key=request.param))
        else:
            processes = request.getfixturevalue("shared_processes")
        primary, secondary = processes
        both = Pair(primary, secondary)
        _empty(both.primary, both.primary["contoso"])
        _empty(both.secondary, both.secondary["contoso-dr"])
        for queue in ("flights", "briefings"):
            both.primary["contoso"].create_queue(queue)
        define_connection(monkeypatch, both.extra())
        yield both


@pytest.fixture
def restart_soon() -> Iterator[RestartSoon]:
    """Start a killed process again in two seconds, while the test waits for something else."""
    timers: list[threading.Timer] = []

    def plan(process: EmulatorProcess) -> None:
        timers.append(threading.Timer(2, process.start))
        timers[-1].start()

    yield plan
    for timer in timers:
        timer.join()


@pytest.fixture
def run_dag(airflow_db: Path) -> RunDag:  # noqa: ARG001  the tables must exist
    """Run a DAG in this process, with its triggers; the options are those of ``dag.test``."""
    from tests.airflow.support.dag_bag import DagBag, sync_bag_to_db

    def run(dag: DAG, **options: Any) -> DagRun:
        for each in dag.tasks:
            each.retry_delay = timedelta(0)  # tests retry without delay
        bag = DagBag(os.devnull)
        dag.fileloc = dag.relative_fileloc = __file__
        bag.bag_dag(dag)
        sync_bag_to_db(bag, "dags-folder", None)
        finished: DagRun = dag.test(**options)
        return finished

    return run


@pytest.fixture
def log_of_failure(run_dag: RunDag, capfd: pytest.CaptureFixture[str]) -> LogOfFailure:
    """Run a DAG of one task, which must fail, and return its log."""
    from airflow.sdk import DAG

    def run(make: Callable[[], object]) -> str:
        with DAG("failing", schedule=None) as dag:
            make()
        assert set(states(run_dag(dag)).values()) == {"failed"}
        printed = capfd.readouterr()
        assert KEY not in printed.out + printed.err
        return printed.out + printed.err

    return run


@pytest.fixture
def example() -> Example:
    """Import an example DAG, or one of the demo, as Airflow does."""

    def load(dag_id: str) -> DAG:
        from tests.airflow.support.dag_bag import DagBag

        files = [*sorted(EXAMPLES.glob("*.py")), PROJECT / "dags" / "flights_pipeline.py"]
        bag = DagBag(str(next(file for file in files if f'"{dag_id}"' in file.read_text())))
        assert bag.import_errors == {}
        return bag.dags[dag_id]

    return load


def run_task(run_dag: RunDag, *tasks: Callable[[], object]) -> dict[str, Any]:
    """Run a DAG of these tasks, one after the other; their results, when all have succeeded."""
    from airflow.sdk import DAG, chain

    with DAG("tasks", schedule=None) as dag:
        made: list[Any] = [make() for make in tasks]
        chain(*made)
    run = run_dag(dag)
    assert set(states(run).values()) == {"success"}, states(run)
    return results(run)


def events(kind: str) -> list[dict[str, Any]]:
    """The extras of all ``failover`` or ``recovery`` events, the oldest first."""
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    found = select(AssetEvent.extra).join(AssetModel, AssetModel.id == AssetEvent.asset_id)
    with create_session() as session:
        return list(
            session.scalars(found.where(AssetModel.name == f"servicebus_pair.{CONN_ID}.{kind}").order_by(AssetEvent.id))
        )


def shared_health(entity: str) -> EntityHealth:
    """The health of an entity that tasks have shared."""
    from airflow.utils.session import create_session

    from servicebus_pair.ui.sources.stored_state import read_states

    with create_session() as session:
        found = [state[f"health/{entity}"] for state in read_states(session).values() if f"health/{entity}" in state]
    (only,) = found
    return EntityHealth.from_json(only)


def results(run: DagRun) -> dict[str, Any]:
    """The result of each task of a run, by task id."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        rows = session.execute(
            select(XComModel.task_id, XComModel.value).where(
                XComModel.run_id == run.run_id, XComModel.dag_id == run.dag_id, XComModel.key == "return_value"
            )
        )
        return {task_id: _decode(value) for task_id, value in rows}


def _decode(stored: Any) -> Any:
    """Decode a result: a text is stored as it is, other values as JSON."""
    try:
        return json.loads(stored) if isinstance(stored, str) else stored
    except ValueError:
        return stored


def states(run: DagRun) -> dict[str, str]:
    """The state of each task of a run."""
    return {instance.task_id: str(instance.state) for instance in run.get_task_instances()}
