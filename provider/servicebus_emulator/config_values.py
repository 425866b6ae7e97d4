"""Typed access to the values of a configuration file, with their path for error messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final, NoReturn

from servicebus_emulator.engine.model.descriptions import EntityStatus
from servicebus_emulator.engine.model.entity_names import NOT_IN_XML
from servicebus_emulator.engine.model.timespan import TimeSpan

__all__ = ["ConfigError", "ConfigValue", "parse_document"]

_SECRET: Final = re.compile("key|secret", re.IGNORECASE)
_LONGEST_SHOWN: Final = 100


class ConfigError(ValueError):
    """The configuration file holds a value that is not allowed.

    :ivar path: its path, such as ``UserConfig.Namespaces[0].Queues[1].Name``.
    :ivar value: the invalid value, without keys and secrets.
    :ivar allowed: the allowed values.
    """

    def __init__(self, path: str, *, value: object, allowed: str) -> None:
        shown = _hidden(value)
        text = repr(shown)
        text = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
        super().__init__(f"{path} is {text}; allowed: {allowed}")
        self.path = path
        self.value = shown
        self.allowed = allowed


def parse_document(text: str) -> ConfigValue:
    """Parse the text of a configuration file.

    :raises ConfigError: when it is not JSON, or an object has a member twice.
    """
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(place, value=error.msg, allowed="a JSON document") from error
    return ConfigValue("", document)


class ConfigValue:
    """A value of a configuration file.

    :param path: its path, such as ``UserConfig.Namespaces[0].Name``.
    """

    def __init__(self, path: str, value: object) -> None:
        self.path: Final = path
        self.value: Final = value

    def refuse(self, allowed: str) -> NoReturn:
        """Refuse the value.

        :raises ConfigError: always.
        """
        raise ConfigError("the document" if self.path == "" else self.path, value=self.value, allowed=allowed)

    def members(self, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()) -> Mapping[str, ConfigValue]:
        """Return the members of an object, by name."""
        known = (*required, *optional)
        nodes = {name: ConfigValue(self.below(name), value) for name, value in self.object().items()}
        for name, node in nodes.items():
            if name not in known:
                value = _masked({name: node.value})[name]
                raise ConfigError(node.path, value=value, allowed=f"only {', '.join(known)}")
        for name in required:
            if name not in nodes:
                raise ConfigError(self.below(name), value="missing", allowed="a value; it is required")
        return nodes

    def below(self, name: str) -> str:
        """Return the path of a member."""
        return name if self.path == "" else f"{self.path}.{name}"

    def object(self) -> dict[str, object]:
        """Return an object."""
        if not isinstance(self.value, dict):
            self.refuse("an object")
        return self.value

    def items(self, *, least: int = 0) -> Iterator[ConfigValue]:
        """Return the items of a list."""
        if not isinstance(self.value, list) or len(self.value) < least:
            self.refuse("a list" if least == 0 else f"a list of at least {least}")
        return (ConfigValue(f"{self.path}[{index}]", value) for index, value in enumerate(self.value))

    def text(self) -> str:
        """Return a string."""
        if not isinstance(self.value, str):
            self.refuse("a string")
        if NOT_IN_XML.search(self.value) is not None:
            self.refuse("a string of characters that XML can carry, as the administration API must")
        return self.value

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

    def duration(self) -> TimeSpan:
        """Return a duration."""
        text = self.text()
        try:
            return TimeSpan.parse(text)
        except ValueError:
            self.refuse(f"an ISO 8601 duration such as PT1M, at most {TimeSpan.MAX}")

    def one_of(self, *allowed: str) -> str:
        """Return one of several words."""
        return self.value if isinstance(self.value, str) and self.value in allowed else self.refuse(", ".join(allowed))

    def status(self) -> EntityStatus:
        """Return the status of an entity."""
        return EntityStatus(self.one_of(*(status.value for status in EntityStatus)))


def _masked(members: Mapping[str, object]) -> dict[str, object]:
    """Hide each value that may be a key or a secret."""
    return {name: "***" if _SECRET.search(name) else _hidden(value) for name, value in members.items()}


def _hidden(value: object) -> object:
    if isinstance(value, list):
        return [_hidden(each) for each in value]
    return _masked(value) if isinstance(value, dict) else value


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ConfigError(f"member {twice!r}", value="given twice in one object", allowed="each member once")
    return members


def _refuse_constant(constant: str) -> NoReturn:
    raise ConfigError("a number", value=constant, allowed="a number that JSON knows")
