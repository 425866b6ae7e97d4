"""The network rules of a namespace: there are none, since whoever reaches a port is let in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from servicebus_emulator.arm.calls import Answer, Call
from servicebus_emulator.arm.entities import properties_in
from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.arm.host import Hosted
from servicebus_emulator.arm.values import Value

__all__ = ["NETWORK_ACTIONS"]

_NAME: Final = "default"

_OPEN: Final = {
    "publicNetworkAccess": "Enabled",
    "defaultAction": "Allow",
    "trustedServiceAccessEnabled": False,
    "virtualNetworkRules": [],
    "ipRules": [],
}


def _list(hosted: Hosted, call: Call) -> Answer:
    return call.list((_NAME,), show=lambda name: _shown(hosted, name, call=call))


def _get(hosted: Hosted, call: Call) -> Answer:
    if call.address.names[-1].casefold() != _NAME:
        raise ArmError(404, code="NotFound", message=f"a namespace has one set of network rules, named {_NAME!r}")
    return Answer(200, _shown(hosted, _NAME, call=call))


def _put(hosted: Hosted, call: Call) -> Answer:
    answer = _get(hosted, call)
    properties = properties_in(call)
    members = {} if properties is None else properties.members(*_OPEN)
    for name, value in members.items():
        _check(value, open_value=_OPEN[name])
    return answer


NETWORK_ACTIONS: Final[Mapping[bool, Mapping[str, Callable[[Hosted, Call], Answer]]]] = {
    True: {"GET": _list},
    False: {"GET": _get, "PUT": _put},
}
"""What can be done, by whether all sets of rules are meant, and by method."""


def _check(value: Value, *, open_value: object) -> None:
    if value.value != open_value and value.path != "properties.trustedServiceAccessEnabled":
        value.refuse(f"{open_value!r}; addresses are not checked, so rules would be idle")


def _shown(hosted: Hosted, name: str, *, call: Call) -> dict[str, object]:
    return {**call.identify(hosted.name, name), "properties": _OPEN}
