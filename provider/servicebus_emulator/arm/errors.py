"""Errors of Azure Resource Manager: a status, a code, a message."""

from __future__ import annotations

import re
from typing import Final
from uuid import uuid4

from servicebus_emulator.engine.model.descriptions import IDENTITY
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.errors import BrokerError
from servicebus_emulator.engine.model.tracking import tracked

_CODES: Final = {
    400: "BadRequest",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    413: "RequestEntityTooLarge",
    501: "NotImplemented",
}


class ArmError(Exception):
    """An error response.

    :ivar status: the HTTP status.
    :ivar code: the error code (Azure Resource Manager RPC, "Common API details"); None = the default of the status.
    """

    def __init__(self, status: int, message: str, *, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = _CODES.get(status, "InternalError") if code is None else code

    def document(self) -> dict[str, object]:
        """Return the body of the response."""
        return {"error": {"code": self.code, "message": f"{tracked(str(self))} CorrelationId: {uuid4()}"}}


def camel_case(attribute: str) -> str:
    """Return the JSON name of an attribute: ``lock_duration`` is ``lockDuration``."""
    first, *others = attribute.split("_")
    return first + "".join(word.capitalize() for word in others)


def to_arm_error(error: BrokerError | DescriptionError) -> ArmError:
    """Translate an error of the broker."""
    if isinstance(error, BrokerError):
        return ArmError(error.status, str(error))
    # A field such as "CorrelationFilter" is not an attribute.
    json_name = camel_case(error.field) if re.fullmatch(r"[a-z_]+", error.field) is not None else error.field
    field = "name" if error.field in IDENTITY else f"properties.{json_name}"
    return ArmError(400, f"{field} is {error.value!r}; allowed: {error.allowed}")
