"""Redirects Service Bus host names in this process to the ports of an embedded Service Bus.

The SDK always connects to ports 5671 and 443. A patched ``socket.getaddrinfo`` can also replace the port, which avoids
privileged ports and changes to the SDK. Other Service Bus host names do not resolve, so no request reaches Azure.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any, Final

SUFFIX: Final = ".servicebus.windows.net"
AMQPS: Final = 5671
HTTPS: Final = 443

_LOCAL: Final = "127.0.0.1"
_resolve: Final = socket.getaddrinfo


def redirect_hosts(ports: Mapping[tuple[str, int], int]) -> None:
    """Redirect connections to Service Bus host names in this process.

    :param ports: loopback port by host name and original port.
    """

    def resolve(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        if not isinstance(name, str) or not name.endswith(SUFFIX):
            return _resolve(host, port, *arguments, **options)
        served = ports.get((name, int(port)))
        if served is None:
            raise socket.gaierror(socket.EAI_NONAME, f"there is no embedded namespace {name}:{port}")
        return _resolve(_LOCAL, served, *arguments, **options)

    socket.getaddrinfo = resolve
