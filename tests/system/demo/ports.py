"""Free ports on loopback."""

from __future__ import annotations

import socket

__all__ = ["HOST", "free_port", "next_free_port"]

HOST = "127.0.0.1"


def free_port() -> int:
    """Return a port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def next_free_port(first: int) -> int:
    """Return the first port from here on that nobody listens on."""
    for port in range(first, first + 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise OSError(f"no free port from {first} to {first + 99}; stop what listens there")
