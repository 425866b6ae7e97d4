"""A Spark session and two emulated namespaces in their own processes, shared by all Spark tests."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from servicebus_pair.core import NamespacePair, SyncBridge, read_pair_settings
from servicebus_pair.core.sdk.administration.data_plane import ServiceBusAdministration
from tests.benchmarks.spark.session import LOOPBACK_CONF
from tests.system.demo.comparison import Found
from tests.system.demo.namespaces import KEY, PRIMARY, SECONDARY, Namespace
from tests.system.demo.peek import peek_everything
from tests.system.demo.ports import PortReservation
from tests.system.demo.processes import Processes

CANARY = KEY  # the key of both namespaces, which no output may contain
BACKLOG_QUEUES = 2
# Short programs on few cores would spend most of their time in the optimizing compiler.
CONF = LOOPBACK_CONF | {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.get_closest_marker("timeout") is None:
                # A longer timeout: Py4J confuses the replies after an interrupted call.
                item.add_marker(pytest.mark.timeout(400))
            # PySpark 4.2 warns about the pandas that the environment pins, and leaves sockets to the garbage collector.
            item.add_marker(pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas"))
            item.add_marker(pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"))


@dataclass(frozen=True)
class Pair:
    """The primary ``contoso`` and the secondary ``contoso-dr``, running, with a file of their settings."""

    primary: Namespace
    secondary: Namespace
    processes: Processes
    file: Path

    @property
    def reference(self) -> str:
        return f"file:{self.file}"

    @property
    def settings(self) -> dict[str, Any]:
        settings: dict[str, Any] = json.loads(self.file.read_text())
        return settings

    def open(self) -> NamespacePair:
        read = read_pair_settings(self.settings)
        return NamespacePair(read.primary, read.secondary, read.options)

    def fresh_queue(self, **properties: Any) -> str:
        """Create a queue of the primary that no other test uses, with properties of the SDK's ``create_queue``."""
        name = f"q-{uuid.uuid4().hex[:8]}"
        self.administer("primary", lambda administration: administration._client.create_queue(name, **properties))
        return name

    def administer(self, side: str, change: Callable[[ServiceBusAdministration], Awaitable[Any]]) -> None:
        """Change entities of the primary or the secondary."""

        async def run() -> None:
            async with ServiceBusAdministration(getattr(read_pair_settings(self.settings), side)) as administration:
                await change(administration)

        with SyncBridge() as bridge:
            bridge.run(run())

    def peek(self, *paths: str) -> list[Found]:
        """Return all messages of queues and subscriptions of the primary, dead letters too."""
        return list(peek_everything(self.primary.connection_string, paths))

    def bodies_by_id(self, queue: str) -> dict[str, list[bytes]]:
        """Return the bodies that a queue holds under each message id."""
        bodies: defaultdict[str, list[bytes]] = defaultdict(list)
        for found in self.peek(queue):
            bodies[found.key[1]].append(found.content.body)
        return dict(bodies)


@pytest.fixture(scope="session")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    home = tmp_path_factory.mktemp("namespaces")
    processes = Processes(record=home / "pids.json", logs=home)
    try:
        ports = PortReservation()
        primary = Namespace.on_free_ports(PRIMARY, home=home, ports=ports)
        secondary = Namespace.on_free_ports(SECONDARY, home=home, ports=ports)
        primary.start(processes)
        secondary.start(processes)
        settings = {
            "primary_connection_string": primary.connection_string,
            "primary_namespace": PRIMARY,
            "primary_administration": primary.administration,
            "secondary_connection_string": secondary.connection_string,
            "secondary_namespace": SECONDARY,
            "secondary_administration": secondary.administration,
            "failover_interval": 1,
            "ping_primary_interval": 1,
            "backlog_queue_count": BACKLOG_QUEUES,
        }
        file = home / "pair.json"
        file.touch(mode=0o600)
        file.write_text(json.dumps(settings))
        both = Pair(primary, secondary, processes, file)
        asyncio.run(provision(both))
        yield both
    finally:
        processes.stop()


async def provision(both: Pair) -> None:
    async with both.open() as opened:
        await opened.provision()


@dataclass(frozen=True)
class Session:
    spark: SparkSession
    events: Path

    def event_log(self) -> str:
        return "".join(file.read_text() for file in self.events.rglob("*") if file.is_file() and file.suffix != ".crc")


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory, pair: Pair) -> Iterator[Session]:
    events = tmp_path_factory.mktemp("events")
    os.environ["PAIR"] = pair.file.read_text()  # inherited by all Spark processes
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master("local[2,2]").appName("tests")  # two attempts per task
    conf = {
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": events.as_uri(),
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
    }
    for name, value in (CONF | {"spark.sql.shuffle.partitions": "4"} | conf).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    yield Session(spark, events)
    spark.stop()


@pytest.fixture(scope="session")
def spark(session: Session) -> SparkSession:
    return session.spark
