"""What a namespace of the service may have and one here never has: lists of it are empty."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NoReturn

from servicebus_emulator.arm.calls import Answer, Call
from servicebus_emulator.arm.errors import ArmError

__all__ = ["ABSENT", "ABSENT_ACTIONS"]

ABSENT: Final = frozenset(
    (kind,)
    for kind in (
        "disasterRecoveryConfigs",
        "migrationConfigurations",
        "networkSecurityPerimeterConfigurations",
        "privateEndpointConnections",
        "privateLinkResources",
    )
)
"""The types, as they stand below the namespace."""


def _list(_: Call) -> Answer:
    return Answer(200, {"value": []})


def _get(call: Call) -> NoReturn:
    kind, name = call.address.types[-1], call.address.names[-1]
    raise ArmError(404, code="NotFound", message=f"nothing among {kind} is named {name!r}; here there are none")


def _put(call: Call) -> NoReturn:
    raise ArmError(501, code="NotImplemented", message=f"{call.address.types[-1]} are not supported here")


def _delete(_: Call) -> Answer:
    return Answer(204)


ABSENT_ACTIONS: Final[Mapping[bool, Mapping[str, Callable[[Call], Answer]]]] = {
    True: {"GET": _list},
    False: {"GET": _get, "PUT": _put, "DELETE": _delete},
}
"""What can be asked, by whether all are meant, and by method."""
