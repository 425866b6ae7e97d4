"""Resource types of the service that the emulator does not support: their lists are empty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.requests import Request, Response

__all__ = ["UNSUPPORTED_ACTIONS", "UNSUPPORTED_TYPES"]

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


def _list(_: Request) -> Response:
    return Response(200, {"value": []})


def _get(request: Request) -> NoReturn:
    kind, name = request.address.types[-1], request.address.names[-1]
    raise ArmError(404, f"{kind} has no {name!r}: the emulator does not support this type")


def _put(request: Request) -> NoReturn:
    raise ArmError(501, f"{request.address.types[-1]} are not supported here")


def _delete(_: Request) -> Response:
    return Response(204)


UNSUPPORTED_ACTIONS: Final[Mapping[bool, Mapping[str, Callable[[Request], Response]]]] = {
    True: {"GET": _list},
    False: {"GET": _get, "PUT": _put, "DELETE": _delete},
}
"""Actions by whether the address is a list, and by method."""
