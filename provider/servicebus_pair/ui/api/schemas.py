"""Request bodies of the actions, validated with pydantic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from servicebus_pair.core.model import secret_kind
from servicebus_pair.ui.view.action_catalogue import ActionName

# Without control characters, which would forge lines of logs or, for the direction of writing, show another name.
_PRINTED: Final = r"^[^\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]*$"


def _no_secret(value: str) -> str:
    if secret_kind(value) is not None:
        raise ValueError("a reason is shown to all who see the page: it must hold no secret")
    return value


Reason = Annotated[
    str,
    StringConstraints(strip_whitespace=True, min_length=1, max_length=500, pattern=_PRINTED),
    AfterValidator(_no_secret),
]
EntityPath = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=260, pattern=_PRINTED)]
Entities = Annotated[list[EntityPath], Field(min_length=1, max_length=100)]
Rate = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]


class ActionRequest(BaseModel):
    """Fields common to all actions; the reason goes to the audit log."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Reason

    def settings(self) -> dict[str, Any]:
        """Return all fields except the reason and those that are ``None``."""
        return self.model_dump(exclude={"reason"}, exclude_none=True)


class _Provision(ActionRequest):
    plan_only: bool = False


class _Drill(ActionRequest):
    entities: Entities
    messages: Annotated[int, Field(ge=1, le=10_000)] = 10


class _FailOver(ActionRequest):
    entities: Entities
    hold_minutes: Annotated[int, Field(ge=0, le=7 * 1440)] = 60


class _FailBack(ActionRequest):
    entities: Entities


class _Syphon(ActionRequest):
    rate: Rate | None = None


class _Cleanup(ActionRequest):
    what: Literal["extra", "all"] = "extra"


_SCHEMAS: Final[Mapping[ActionName, type[ActionRequest]]] = {
    ActionName.PROVISION: _Provision,
    ActionName.DRILL: _Drill,
    ActionName.FAIL_OVER: _FailOver,
    ActionName.FAIL_BACK: _FailBack,
    ActionName.START_SYPHON: _Syphon,
    ActionName.PAUSE_SYPHON: ActionRequest,
    ActionName.RESUME_SYPHON: ActionRequest,
    ActionName.THROTTLE_SYPHON: _Syphon,
    ActionName.REDRIVE: _Syphon,
    ActionName.PLAN_CLEANUP: _Cleanup,
}


class RequestBodyError(ValueError):
    """A request body is invalid; ``fields`` lists each invalid field with a message."""

    def __init__(self, fields: list[dict[str, str]]) -> None:
        super().__init__("; ".join(f"{each['field']}: {each['message']}" for each in fields))
        self.fields = fields


def parse_request(action: ActionName, content: bytes) -> ActionRequest:
    """Parse the JSON body of an action. :raises RequestBodyError: with every invalid field."""
    try:
        return _SCHEMAS[action].model_validate_json(content)
    except ValidationError as error:
        raise RequestBodyError(
            [
                {"field": ".".join(map(str, each["loc"])) or "body", "message": each["msg"]}
                for each in error.errors(include_url=False, include_input=False, include_context=False)
            ]
        ) from None
