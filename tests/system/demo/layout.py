"""Where the demo keeps what it makes: one folder that git ignores, made anew by each run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["PROJECT", "Home"]

PROJECT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Home:
    """The folder of one demo and the places in it."""

    root: Path = PROJECT / ".demo"

    @property
    def airflow(self) -> Path:
        """Airflow's own home: database, logs, passwords."""
        return self.root / "airflow"

    @property
    def ledger(self) -> Path:
        """One JSON record a line for every accepted or syphoned message, a file for each process."""
        return self.root / "ledger"

    @property
    def logs(self) -> Path:
        """What each started process prints."""
        return self.root / "logs"

    @property
    def output(self) -> Path:
        """What the Spark jobs write."""
        return self.root / "output"

    @property
    def picture(self) -> Path:
        """Messages over time by route."""
        return self.root / "flow.png"

    @property
    def processes(self) -> Path:
        """What was started, so that a later run can stop it."""
        return self.root / "processes.json"

    @property
    def summary(self) -> Path:
        """The figures of the run."""
        return self.root / "summary.json"

    def make(self) -> None:
        """Create the folder and the places in it."""
        for folder in (self.airflow, self.ledger, self.logs, self.output):
            folder.mkdir(parents=True)
