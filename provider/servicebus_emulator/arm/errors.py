"""What the interface refuses, as Azure Resource Manager says it: a status, a code, a message."""

from __future__ import annotations

import re
from typing import Final

from servicebus_emulator.engine.descriptions import DescriptionError
from servicebus_emulator.engine.errors import BrokerError

__all__ = ["ArmError", "arm_error_of", "arm_name"]

_CODES: Final = {400: "BadRequest", 404: "NotFound", 409: "Conflict", 501: "NotImplemented"}
_DEFAULT_CODE: Final = "InternalError"
_NAMES: Final = frozenset({"path", "topic_path", "name"})


class ArmError(Exception):
    """A request that is refused.

    :ivar status: the HTTP status.
    :ivar code: the machine's word for it (Azure Resource Manager RPC, "Common API details": error response).
    """

    def __init__(self, status: int, *, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code

    def document(self) -> dict[str, object]:
        """Return the body of the answer."""
        return {"error": {"code": self.code, "message": str(self)}}


def arm_name(attribute: str) -> str:
    """Return the interface's name of an attribute: ``lock_duration`` is ``lockDuration``."""
    first, *others = attribute.split("_")
    return first + "".join(word.capitalize() for word in others)


def arm_error_of(error: BrokerError | DescriptionError) -> ArmError:
    """Return how the interface says what the broker refused."""
    if isinstance(error, BrokerError):
        return ArmError(error.status, code=_CODES.get(error.status, _DEFAULT_CODE), message=str(error))
    field = "name" if error.field in _NAMES else f"properties.{_in_camel_case(error.field)}"
    return ArmError(400, code="BadRequest", message=f"{field} is {error.value!r}; allowed: {error.allowed}")


def _in_camel_case(field: str) -> str:
    return arm_name(field) if re.fullmatch(r"[a-z_]+", field) is not None else field
