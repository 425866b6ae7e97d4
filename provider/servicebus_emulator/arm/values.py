"""Values of a JSON document, read with the place at which they stand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn

from servicebus_emulator.arm.errors import ArmError
from servicebus_emulator.engine.descriptions import EntityStatus
from servicebus_emulator.engine.timespan import TimeSpan

__all__ = ["READERS", "Value", "document_of"]

_LONGEST_SHOWN: Final = 100
_MAX_WIDTH: Final = 18
# A client that counts seconds in floating point comes no nearer to TimeSpan.MaxValue than 0.1 ms.
_NEARLY_MAX: Final = re.compile(r"P10675199DT0?2H48M0?5\.477[0-9]*S", re.ASCII)


def document_of(body: bytes) -> Value:
    """Read the body of a request.

    :raises ArmError: when it is no JSON object.
    """
    try:
        document = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise ArmError(400, code="InvalidRequestContent", message=f"the body is no JSON document: {error}") from error
    if not isinstance(document, dict):
        Value("the body", document).refuse("a JSON object")
    return Value("", document)


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON")


class Value:
    """A value of the document.

    :param path: where it stands, such as ``properties.lockDuration``.
    """

    def __init__(self, path: str, value: object) -> None:
        self.path: Final = path
        self.value: Final = value

    def refuse(self, allowed: str) -> NoReturn:
        """Say that the value is not allowed.

        :raises ArmError: always.
        """
        raise ArmError(400, code="BadRequest", message=f"{self.path} is {_shown(self.value)}; allowed: {allowed}")

    def members(self, *known: str) -> Mapping[str, Value]:
        """Return the members of an object by their names in the spelling of `known`; null is none.

        :raises ArmError: when it is no object, or one of its members is not known.
        """
        spellings = {name.casefold(): name for name in known}
        found: dict[str, Value] = {}
        for name, value in self.entries().items():
            spelling = spellings.get(name.casefold())
            if spelling is None:
                value.refuse(f"only {', '.join(known)}")
            if value.value is not None:
                found[spelling] = value
        return found

    def entries(self) -> Mapping[str, Value]:
        """Return the members of an object whose names are free."""
        if not isinstance(self.value, dict):
            self.refuse("an object")
        prefix = "" if self.path == "" else f"{self.path}."
        return {name: Value(prefix + name, value) for name, value in self.value.items()}

    def items(self) -> tuple[Value, ...]:
        """Return the items of a list."""
        if not isinstance(self.value, list):
            self.refuse("a list")
        return tuple(Value(f"{self.path}[{number}]", item) for number, item in enumerate(self.value))

    def text(self) -> str:
        """Return a string."""
        return self.value if isinstance(self.value, str) else self.refuse("a string")

    def optional_text(self) -> str | None:
        """Return a string; an empty one is none."""
        text = self.text()
        return text if text != "" else None

    def boolean(self) -> bool:
        """Return true or false."""
        return self.value if isinstance(self.value, bool) else self.refuse("true, false")

    def integer(self) -> int:
        """Return a whole number of at most 64 bits."""
        if isinstance(self.value, bool) or not isinstance(self.value, int) or abs(self.value) >= 10**_MAX_WIDTH:
            self.refuse("a whole number")
        return self.value

    def duration(self) -> TimeSpan:
        """Return a duration; what is as near to TimeSpan.MaxValue as floating point comes, is that."""
        text = self.text()
        try:
            return TimeSpan.MAX if _NEARLY_MAX.fullmatch(text) is not None else TimeSpan.parse(text)
        except ValueError:
            self.refuse(f"an ISO 8601 duration such as PT1M, at most {TimeSpan.MAX}")

    def one_of(self, allowed: Iterable[str]) -> str:
        """Return one of several words, in the given spelling whatever the case."""
        words = {word.casefold(): word for word in allowed}
        found = words.get(self.text().casefold())
        return found if found is not None else self.refuse(", ".join(words.values()))

    def status(self) -> EntityStatus:
        """Return the status of an entity."""
        return EntityStatus(self.one_of(status.value for status in EntityStatus))


def _shown(value: object) -> str:
    try:
        text = json.dumps(value)
    except RecursionError:
        return "nested deeply"
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."


READERS: Final[Mapping[object, Callable[[Value], object]]] = {
    bool: Value.boolean,
    int: Value.integer,
    TimeSpan: Value.duration,
    EntityStatus: Value.status,
    str | None: Value.optional_text,
}
