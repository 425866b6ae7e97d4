"""Host names of namespaces, resolved in this process to the ports of an embedded Service Bus.

The SDK writes the service's own port numbers (5671 and 443) behind a namespace's host name, and only a resolver
that also answers with a port can lead it elsewhere without a privileged port and without a change to the SDK.
No name of the service itself is ever asked for: what is not served here does not exist.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, Final

__all__ = ["AMQPS", "HTTPS", "SUFFIX", "resolve_here"]

SUFFIX: Final = ".servicebus.windows.net"
AMQPS: Final = 5671
HTTPS: Final = 443

_LOCAL: Final = "127.0.0.1"
_resolve: Final = socket.getaddrinfo


def resolve_here(ports: Mapping[tuple[str, int], int]) -> None:
    """Resolve hosts of namespaces, from now on, in this process.

    :param ports: for a host and the service's port, the port on the loopback address.
    """

    def resolve(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if not isinstance(name, str) or not name.endswith(SUFFIX):
            return _resolve(host, port, *arguments, **options)
        served = ports.get((name, int(port)))
        if served is None:
            raise socket.gaierror(socket.EAI_NONAME, f"no embedded namespace is {name}:{port}")
        return _resolve(_LOCAL, served, *arguments, **options)

    socket.getaddrinfo = resolve
