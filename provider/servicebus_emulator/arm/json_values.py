"""Typed access to the values of a JSON document, with their path for error messages."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn

from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.engine.model.descriptions import EntityStatus
from servicebus_emulator.engine.model.timespan import TimeSpan

__all__ = ["DECODERS", "JsonValue", "parse_body"]

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


class JsonValue:
    """A value of a document.

    :param path: its path, such as ``properties.lockDuration``.
    """

    def __init__(self, path: str, value: object) -> None:
        self.path: Final = path
        self.value: Final = value

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

    def entries(self) -> Mapping[str, JsonValue]:
        """Return the members of an object with arbitrary names."""
        if not isinstance(self.value, dict):
            self.refuse("an object")
        prefix = "" if self.path == "" else f"{self.path}."
        return {name: JsonValue(prefix + name, value) for name, value in self.value.items()}

    def items(self) -> tuple[JsonValue, ...]:
        """Return the items of a list."""
        if not isinstance(self.value, list):
            self.refuse("a list")
        return tuple(JsonValue(f"{self.path}[{number}]", item) for number, item in enumerate(self.value))

    def text(self) -> str:
        """Return a string."""
        return self.value if isinstance(self.value, str) else self.refuse("a string")

    def optional_text(self) -> str | None:
        """Return a string, or None for an empty one."""
        text = self.text()
        return text if text != "" else None

    def boolean(self) -> bool:
        """Return true or false."""
        return self.value if isinstance(self.value, bool) else self.refuse("true, false")

    def integer(self) -> int:
        """Return an integer of at most 64 bits."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or abs(self.value) >= 10**_MAX_DIGITS:
            self.refuse("a whole number")
        return self.value

    def duration(self) -> TimeSpan:
        """Return a duration; the values closest to TimeSpan.MaxValue are rounded up to it."""
        text = self.text()
        try:
            return TimeSpan.MAX if _NEARLY_MAX.fullmatch(text) is not None else TimeSpan.parse(text)
        except ValueError:
            self.refuse(f"an ISO 8601 duration such as PT1M, at most {TimeSpan.MAX}")

    def one_of(self, allowed: Iterable[str]) -> str:
        """Return one of several words, in the spelling of `allowed`; case is ignored."""
        words = {word.casefold(): word for word in allowed}
        found = words.get(self.text().casefold())
        return found if found is not None else self.refuse(", ".join(words.values()))

    def status(self) -> EntityStatus:
        """Return the status of an entity."""
        return EntityStatus(self.one_of(status.value for status in EntityStatus))


def _shorten(value: object) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:
        return "nested deeply"
    return text if len(text) <= _MAX_SHOWN_LENGTH else f"{text[:_MAX_SHOWN_LENGTH]}..."


DECODERS: Final[Mapping[object, Callable[[JsonValue], object]]] = {
    bool: JsonValue.boolean,
    int: JsonValue.integer,
    TimeSpan: JsonValue.duration,
    EntityStatus: JsonValue.status,
    str | None: JsonValue.optional_text,
}
