"""Free ports on loopback, below those that the system gives to outgoing connections.

A port that is in neither range cannot be taken while the primary is dead: not by another program's connection, nor by
a client that keeps connecting to it and, one time in some ten thousand, meets itself.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from pathlib import Path

__all__ = ["HOST", "PortReservation"]

HOST = "127.0.0.1"
TRIES = 200


class PortReservation:
    """Ports that no other demo on this machine chooses, as long as this process lives."""

    def __init__(self) -> None:
        self._locks: dict[int, int] = {}  # file descriptors, left to the end of the process

    def next_free(self, first: int) -> int:
        """Return the first port from here on that nobody listens on and no other demo is about to."""
        for port in range(first, first + TRIES):
            if port not in self._locks and is_free(port) and self._lock(port):
                return port
        raise OSError(f"no free port from {first} to {first + TRIES - 1}; stop what listens there")

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
    """Tell whether nobody listens on a port."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
