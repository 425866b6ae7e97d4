"""The demo's folder, which git ignores and each run recreates."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Home:
    """Paths in the folder of one demo."""

    root: Path = PROJECT / ".demo"

    @property
    def airflow(self) -> Path:
        """AIRFLOW_HOME: database, logs, passwords."""
        return self.root / "airflow"

    @property
    def ledger(self) -> Path:
        """Ledger files, one per process, with one JSON line per accepted or syphoned message."""
        return self.root / "ledger"

    @property
    def logs(self) -> Path:
        """Output of the started processes."""
        return self.root / "logs"

    @property
    def output(self) -> Path:
        """Output of the Spark jobs."""
        return self.root / "output"

    @property
    def plot(self) -> Path:
        """Plot of messages over time by route."""
        return self.root / "flow.png"

    @property
    def processes(self) -> Path:
        """Record of started processes, so that a later run can stop them."""
        return self.root / "processes.json"

    @property
    def summary(self) -> Path:
        return self.root / "summary.json"

    def make(self) -> None:
        for folder in (self.airflow, self.ledger, self.logs, self.output):
            folder.mkdir(parents=True)
