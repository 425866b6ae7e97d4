"""The values in the body of a request to Azure Resource Manager."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Final, NoReturn

from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.engine.model.timespan import TimeSpan
from servicebus_emulator.typed_values import TypedValue

_MAX_SHOWN_LENGTH: Final = 100
_MAX_DIGITS: Final = 18
# Clients that compute seconds in floating point reach TimeSpan.MaxValue only to within 0.1 ms.
_NEARLY_MAX: Final = re.compile(r"P10675199DT0?2H48M0?5\.477[0-9]*S", re.ASCII)


def parse_body(body: bytes) -> JsonValue:
    """Parse the body of a request.

    :raises ArmError: it is not a JSON object.
    """
    try:
        document = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ArmError(400, f"the body is not JSON: {error}", code="InvalidRequestContent") from error
    if not isinstance(document, dict):
        JsonValue("the body", document).refuse("a JSON object")
    return JsonValue("", document)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


class JsonValue(TypedValue):
    """A value of the body of a request."""

    def refuse(self, allowed: str) -> NoReturn:
        """Refuse the value.

        :raises ArmError: always.
        """
        raise ArmError(400, f"{self.path} is {_shorten(self.value)}; allowed: {allowed}")

    def members(self, *known: str) -> Mapping[str, JsonValue]:
        """Return the members of an object that are not null, by their names in the spelling of `known`.

        :raises ArmError: it is not an object, or a member is unknown.
        """
        spellings = {name.casefold(): name for name in known}
        found: dict[str, JsonValue] = {}
        for name, value in self.entries().items():
            spelling = spellings.get(name.casefold())
            if spelling is None:
                value.refuse(f"only {', '.join(known)}")
            if value.value is not None:
                found[spelling] = value
        return found

    def integer(self) -> int:
        """Return an integer of at most 64 bits."""
        number = super().integer()
        return number if abs(number) < 10**_MAX_DIGITS else self.refuse("a whole number")

    def duration(self) -> TimeSpan:
        """Return a duration; the values closest to TimeSpan.MaxValue are rounded up to it."""
        return TimeSpan.MAX if _NEARLY_MAX.fullmatch(self.text()) is not None else super().duration()

    def one_of(self, allowed: Iterable[str]) -> str:
        """Return one of several words, in the spelling of `allowed`; case is ignored."""
        words = {word.casefold(): word for word in allowed}
        found = words.get(self.text().casefold())
        return found if found is not None else self.refuse(", ".join(words.values()))


def _shorten(value: object) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:
        return "nested deeply"
    return text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[:_MAX_SHOWN_LENGTH]}..."
