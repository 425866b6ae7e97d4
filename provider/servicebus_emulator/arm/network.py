"""The network rules of a namespace: always open, because the emulator does not check addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from servicebus_emulator.arm.entities import request_properties
from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.namespace_host import ManagedNamespace
from servicebus_emulator.arm.requests import Request, Response

__all__ = ["NETWORK_ACTIONS"]

_NAME: Final = "default"

_OPEN: Final = {
    "publicNetworkAccess": "Enabled",
    "defaultAction": "Allow",
    "trustedServiceAccessEnabled": False,
    "virtualNetworkRules": [],
    "ipRules": [],
}


def _list(hosted: ManagedNamespace, request: Request) -> Response:
    return request.list_response((_NAME,), encode=lambda name: request.resource(hosted.name, name, properties=_OPEN))


def _get(hosted: ManagedNamespace, request: Request) -> Response:
    if request.address.names[-1].casefold() != _NAME:
        raise ArmError(404, f"a namespace has one set of network rules, named {_NAME!r}")
    return Response(200, request.resource(hosted.name, _NAME, properties=_OPEN))


def _put(hosted: ManagedNamespace, request: Request) -> Response:
    response = _get(hosted, request)
    properties = request_properties(request)
    members = {} if properties is None else properties.members(*_OPEN)
    for name, value in members.items():
        if value.value != _OPEN[name] and name != "trustedServiceAccessEnabled":
            value.refuse(f"{_OPEN[name]!r}; addresses are not checked, so other rules would have no effect")
    return response


NETWORK_ACTIONS: Final[Mapping[bool, Mapping[str, Callable[[ManagedNamespace, Request], Response]]]] = {
    True: {"GET": _list},
    False: {"GET": _get, "PUT": _put},
}
"""Actions by whether the address is a list, and by method."""
