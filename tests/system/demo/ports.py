"""Free ports on loopback, below the ephemeral range.

An ephemeral port could be taken while the primary is down, by another program's outgoing connection or by a client that
reconnects to it: once in about ten thousand attempts TCP connects such a client to itself.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

HOST = "127.0.0.1"
MAX_PORTS = 200


class PortReservation:
    """Ports reserved against other demos on this machine until this process exits."""

    def __init__(self) -> None:
        self._locks: dict[int, int] = {}  # file descriptors, closed when the process exits

    def next_free(self, first: int, *, step: int = 1) -> int:
        """Return a port; with ``step``, the first of so many, which the others with this step leave alone."""
        for port in range(first, first + MAX_PORTS, step):
            if port not in self._locks and is_free(port) and self._lock(port):
                return port
        raise OSError(f"no free port from {first} to {first + MAX_PORTS - 1}; stop the programs that listen there")

    def _lock(self, port: int) -> bool:
        path = Path(tempfile.gettempdir()) / f"servicebus-pair-demo-{port}.lock"
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except PermissionError:  # another user's demo
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another demo
            os.close(lock)
            return False
        self._locks[port] = lock
        return True


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
