"""The values of a configuration file, and the error of one that is not allowed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Final, NoReturn, Self

from servicebus_emulator.engine.model.entity_names import NOT_IN_XML
from servicebus_emulator.typed_values import TypedValue

LEFT_OUT: Final = object()
"""Stands for an item of a list that is not read."""

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


class ConfigValue(TypedValue):
    """A value of a configuration file."""

    def refuse(self, allowed: str) -> NoReturn:
        """Refuse the value.

        :raises ConfigError: always.
        """
        raise ConfigError("the document" if self.path == "" else self.path, value=self.value, allowed=allowed)

    def members(self, *, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()) -> Mapping[str, ConfigValue]:
        """Return the members of an object, by name."""
        known = (*required, *optional)
        nodes = self.entries()
        for name, node in nodes.items():
            if name not in known:
                value = _masked({name: node.value})[name]
                raise ConfigError(node.path, value=value, allowed=f"only {', '.join(known)}")
        for name in required:
            if name not in nodes:
                raise ConfigError(self.below(name), value="missing", allowed="a value; it is required")
        return nodes

    def items(self, *, least: int = 0) -> tuple[Self, ...]:
        """Return the items of a list, but for what was left out."""
        return tuple(each for each in super().items(least=least) if each.value is not LEFT_OUT)

    def text(self) -> str:
        """Return a string."""
        text = super().text()
        if NOT_IN_XML.search(text) is not None:
            self.refuse("a string of characters that XML can carry, as the administration API must")
        return text


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
