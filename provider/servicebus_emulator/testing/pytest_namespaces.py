"""Namespaces in processes of their own, for tests that kill one of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from servicebus_emulator.testing.process import EmulatorProcess
from servicebus_emulator.testing.remote_namespace import RemoteNamespace

__all__ = ["DedicatedNamespace", "DedicatedNamespacePair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DedicatedNamespace(RemoteNamespace):
    """A namespace that has a process to itself.

    :ivar process: the process.
    """

    process: EmulatorProcess

    @classmethod
    def of(cls, process: EmulatorProcess, *, name: str) -> DedicatedNamespace:
        """Return the namespace of a process that runs."""
        served = process[name]
        return cls(**{each.name: getattr(served, each.name) for each in fields(RemoteNamespace)}, process=process)

    def kill(self) -> None:
        """End it at once, as ``kill -9`` does: its peers see their connections break, and nobody listens any more."""
        self.process.kill()

    def freeze(self) -> None:
        """Stop it where it stands: its peers still get their bytes acknowledged, and nothing else."""
        self.process.freeze()

    def restore(self) -> None:
        """Bring it back on the same ports, whether it was killed or frozen; do nothing when it works."""
        self.process.restore()


@dataclass(frozen=True, slots=True, kw_only=True)
class DedicatedNamespacePair:
    """Two namespaces that know nothing of each other.

    :ivar primary: where the application's entities live.
    :ivar secondary: where what the primary cannot take may go.
    """

    primary: DedicatedNamespace
    secondary: DedicatedNamespace
