"""Typed access to the values of a JSON document, with their path for error messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NoReturn, Self

from servicebus_emulator.engine.model.descriptions import EntityStatus
from servicebus_emulator.engine.model.timespan import TimeSpan


class TypedValue:
    """A value of a document; each method refuses a value of another type.

    :param path: its path, such as ``properties.lockDuration``.
    """

    def __init__(self, path: str, value: object) -> None:
        self.path: Final = path
        self.value: Final = value

    def refuse(self, allowed: str) -> NoReturn:
        """Refuse the value, with what is allowed: by the error of the kind of document."""
        raise NotImplementedError

    def below(self, name: str) -> str:
        """Return the path of a member."""
        return name if self.path == "" else f"{self.path}.{name}"

    def entries(self) -> dict[str, Self]:
        """Return the members of an object with arbitrary names."""
        if not isinstance(self.value, dict):
            self.refuse("an object")
        return {name: type(self)(self.below(name), value) for name, value in self.value.items()}

    def items(self, *, least: int = 0) -> tuple[Self, ...]:
        """Return the items of a list."""
        if not isinstance(self.value, list) or len(self.value) < least:
            self.refuse("a list" if least == 0 else f"a list of at least {least}")
        return tuple(type(self)(f"{self.path}[{index}]", value) for index, value in enumerate(self.value))

    def text(self) -> str:
        """Return a string."""
        return self.value if isinstance(self.value, str) else self.refuse("a string")

    def optional_text(self) -> str | None:
        """Return a string, or None for null and the empty string."""
        return None if self.value is None or self.value == "" else self.text()

    def boolean(self) -> bool:
        """Return true or false."""
        return self.value if isinstance(self.value, bool) else self.refuse("true, false")

    def integer(self) -> int:
        """Return an integer."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            self.refuse("a whole number")
        return self.value

    def scalar(self) -> str | int | float | bool:
        """Return a string, a number or a boolean."""
        return (
            self.value if isinstance(self.value, str | int | float) else self.refuse("a string, a number, true, false")
        )

    def duration(self) -> TimeSpan:
        """Return a duration."""
        text = self.text()
        try:
            return TimeSpan.parse(text)
        except ValueError:
            self.refuse(f"an ISO 8601 duration such as PT1M, at most {TimeSpan.MAX}")

    def one_of(self, allowed: Iterable[str]) -> str:
        """Return one of several words."""
        words = tuple(allowed)
        return self.value if isinstance(self.value, str) and self.value in words else self.refuse(", ".join(words))

    def status(self) -> EntityStatus:
        """Return the status of an entity."""
        return EntityStatus(self.one_of(EntityStatus))


READERS: Final[Mapping[object, Callable[[TypedValue], object]]] = {
    bool: lambda value: value.boolean(),
    int: lambda value: value.integer(),
    TimeSpan: lambda value: value.duration(),
    EntityStatus: lambda value: value.status(),
    str | None: lambda value: value.optional_text(),
}
"""How to read a value of each type that a property of an entity may have."""
