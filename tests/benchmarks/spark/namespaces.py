"""The two namespaces of a benchmark, each in its own process, and the file with the settings of the pair."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import psutil

from servicebus_emulator.testing.process import EmulatorProcess
from servicebus_emulator.testing.remote_namespace import RemoteNamespace
from servicebus_pair.core import NamespacePair, SyncBridge, read_pair_settings

PRIMARY: Final = "contoso"
SECONDARY: Final = "contoso-dr"
QUEUE: Final = "bench"
_MEGABYTES: Final = 5120
_BACKLOG_QUEUES: Final = 10


@dataclass(frozen=True, slots=True)
class Namespaces:
    """A provisioned pair, with a queue on its primary.

    :param home: a folder for output.
    :param file: the pair's settings.
    """

    primary_process: EmulatorProcess
    secondary_process: EmulatorProcess
    home: Path
    file: Path

    @property
    def reference(self) -> str:
        return f"file:{self.file}"

    @property
    def primary(self) -> RemoteNamespace:
        return self.primary_process[PRIMARY]

    def processes(self) -> list[psutil.Process]:
        """Return the running processes, without the primary's while it is down."""
        found = []
        for each in (self.primary_process, self.secondary_process):
            with suppress(RuntimeError, psutil.Error):
                found.append(psutil.Process(each.pid))
        return found


@contextmanager
def namespaces() -> Iterator[Namespaces]:
    """Start both namespaces, and stop them at the end."""
    with TemporaryDirectory(prefix="bench-spark-") as folder:
        home = Path(folder)
        # The primary has its queue again after every start.
        config = home / "config.json"
        queues = [{"Name": QUEUE, "Properties": {"MaxSizeInMegabytes": _MEGABYTES}}]
        config.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": PRIMARY, "Queues": queues}]}}))
        with EmulatorProcess([PRIMARY], config=config) as primary, EmulatorProcess([SECONDARY]) as secondary:
            served = {"primary": primary[PRIMARY], "secondary": secondary[SECONDARY]}
            settings: dict[str, object] = {"backlog_queue_count": _BACKLOG_QUEUES, "failover_interval": 1}
            for side, each in served.items():
                settings[f"{side}_connection_string"] = each.connection_string
                settings[f"{side}_namespace"] = each.name
                settings[f"{side}_administration"] = f"{each.host}:{each.admin_port}"
            file = home / "pair.json"
            file.touch(mode=0o600)
            file.write_text(json.dumps(settings))
            _provision(settings)
            yield Namespaces(primary, secondary, home, file)


def _provision(settings: dict[str, object]) -> None:
    async def provision() -> None:
        read = read_pair_settings(settings)
        async with NamespacePair(read.primary, read.secondary, read.options) as pair:
            await pair.provision()

    with SyncBridge() as bridge:
        bridge.run(provision())
