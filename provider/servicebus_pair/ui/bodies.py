"""The bodies of the actions, checked before anything is done."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from servicebus_pair.ui.actions import ActionName

__all__ = ["Body", "BodyProblem", "read_body"]

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=500)]
EntityPath = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=260)]
Entities = Annotated[list[EntityPath], Field(min_length=1, max_length=100)]
Rate = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False)]


class Body(BaseModel):
    """What every action takes: why it is done, for the record."""

    model_config = ConfigDict(extra="forbid", strict=True)

    reason: Text

    def settings(self) -> dict[str, Any]:
        """What was given, beside the reason."""
        return {name: value for name, value in self.model_dump(exclude={"reason"}).items() if value is not None}


class _Provision(Body):
    plan_only: bool = False


class _Drill(Body):
    entities: Entities
    messages: Annotated[int, Field(ge=1, le=10_000)] = 10


class _FailOver(Body):
    entities: Entities
    hold_minutes: Annotated[int, Field(ge=0, le=7 * 1440)] = 60


class _FailBack(Body):
    entities: Entities


class _Syphon(Body):
    rate: Rate | None = None


class _Cleanup(Body):
    what: Literal["extra", "all"] = "extra"


_BODIES: Final[Mapping[ActionName, type[Body]]] = MappingProxyType(
    {
        ActionName.PROVISION: _Provision,
        ActionName.DRILL: _Drill,
        ActionName.FAIL_OVER: _FailOver,
        ActionName.FAIL_BACK: _FailBack,
        ActionName.START_SYPHON: _Syphon,
        ActionName.PAUSE_SYPHON: Body,
        ActionName.RESUME_SYPHON: Body,
        ActionName.THROTTLE_SYPHON: _Syphon,
        ActionName.REDRIVE: _Syphon,
        ActionName.PLAN_CLEANUP: _Cleanup,
    }
)


class BodyProblem(ValueError):  # noqa: N818  a problem with what came, told field by field
    """A body of the wrong shape; ``fields`` says of each field what is wrong with it."""

    def __init__(self, fields: list[dict[str, str]]) -> None:
        super().__init__("; ".join(f"{each['field']}: {each['message']}" for each in fields))
        self.fields = fields


def read_body(action: ActionName, content: bytes) -> Body:
    """Return the body of an action. :raises BodyProblem: naming each field that is wrong."""
    try:
        return _BODIES[action].model_validate_json(content)
    except ValidationError as error:
        raise BodyProblem(
            [
                {"field": ".".join(map(str, each["loc"])) or "body", "message": each["msg"]}
                for each in error.errors(include_url=False, include_input=False, include_context=False)
            ]
        ) from None
