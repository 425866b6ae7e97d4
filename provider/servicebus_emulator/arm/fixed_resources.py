"""What never changes here: the network rules of a namespace, and resource types that the emulator does not support.

The rules are always open, because addresses are not checked; the lists of the other types are empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from servicebus_emulator.arm.entities import request_properties
from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.namespace_host import ManagedNamespace
from servicebus_emulator.arm.requests import Request, Response

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

UNSUPPORTED_TYPES: Final = frozenset(
    (kind,)
    for kind in (
        "disasterRecoveryConfigs",
        "migrationConfigurations",
        "networkSecurityPerimeterConfigurations",
        "privateEndpointConnections",
        "privateLinkResources",
    )
)
"""The types, relative to the namespace."""


def _list_none(_: Request) -> Response:
    return Response(200, {"value": []})


def _get_none(request: Request) -> NoReturn:
    kind, name = request.address.types[-1], request.address.names[-1]
    raise ArmError(404, f"{kind} has no {name!r}: the emulator does not support this type")


def _put_none(request: Request) -> NoReturn:
    raise ArmError(501, f"{request.address.types[-1]} are not supported here")


def _delete_none(_: Request) -> Response:
    return Response(204)


UNSUPPORTED_ACTIONS: Final[Mapping[bool, Mapping[str, Callable[[Request], Response]]]] = {
    True: {"GET": _list_none},
    False: {"GET": _get_none, "PUT": _put_none, "DELETE": _delete_none},
}
"""Actions by whether the address is a list, and by method."""
