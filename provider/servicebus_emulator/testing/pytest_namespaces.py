"""Namespaces in their own processes, for tests that kill one of them."""

from __future__ import annotations

from dataclasses import dataclass, fields

from servicebus_emulator.testing.process import EmulatorProcess
from servicebus_emulator.testing.remote_namespace import RemoteNamespace

__all__ = ["DedicatedNamespace", "DedicatedNamespacePair"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DedicatedNamespace(RemoteNamespace):
    """A namespace in its own process."""

    process: EmulatorProcess

    @classmethod
    def of(cls, process: EmulatorProcess, *, name: str) -> DedicatedNamespace:
        """Return a namespace of a running process."""
        served = process[name]
        return cls(**{each.name: getattr(served, each.name) for each in fields(RemoteNamespace)}, process=process)

    def kill(self) -> None:
        """End the process at once, as ``kill -9`` does."""
        self.process.kill()

    def freeze(self) -> None:
        """Suspend the process: its kernel acknowledges bytes, but nothing is sent."""
        self.process.freeze()

    def restore(self) -> None:
        """Start the killed process on the same ports, or resume the frozen one."""
        self.process.restore()


@dataclass(frozen=True, slots=True, kw_only=True)
class DedicatedNamespacePair:
    """Two independent namespaces."""

    primary: DedicatedNamespace
    secondary: DedicatedNamespace
