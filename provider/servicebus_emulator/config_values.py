"""The values of a configuration file, and the error of one that is not allowed."""

from __future__ import annotations

import errno
import json
import os
import re
import stat
from collections import Counter
from collections.abc import Mapping
from typing import Final, NoReturn, Self

from servicebus_emulator.engine.model.entity_names import NOT_IN_XML
from servicebus_emulator.typed_values import TypedValue

LEFT_OUT: Final = object()
"""Stands for an item of a list that is not read."""

_TOO_DEEP: Final = object()
_SECRET: Final = re.compile("key|secret", re.IGNORECASE)
# A connection string in the wrong place.
_PASTED: Final = re.compile(r"(?<=SharedAccessKey=)[^;'\"]+|(?<=SharedAccessSignature=)[^;'\"]+", re.IGNORECASE)
_LONGEST_SHOWN: Final = 100
_LONGEST_PATH: Final = 500
_MAX_BYTES: Final = 16 * 1024 * 1024
_MAX_DEPTH: Final = 20
_MAX_NAME: Final = 256


class ConfigError(ValueError):
    """The configuration file holds a value that is not allowed.

    :ivar path: its path, such as ``UserConfig.Namespaces[0].Queues[1].Name``.
    :ivar value: the invalid value, without keys and secrets.
    :ivar allowed: the allowed values.
    """

    def __init__(self, path: str, *, value: object, allowed: str) -> None:
        shown = _hidden(value)
        text = _PASTED.sub("***", repr(shown))
        text = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}..."
        # A path has names of the file, which may move the cursor of a terminal.
        shown_path = "".join(each if each.isprintable() else repr(each)[1:-1] for each in path[:_LONGEST_PATH])
        super().__init__(f"{shown_path} is {text}; allowed: {allowed}")
        self.path = path
        self.value = shown
        self.allowed = allowed


def read_file(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file that a person names.

    :raises OSError: when it cannot be read, is a pipe or a device, which may have no end, or has more than 16 MB.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", os.fspath(path))
    with os.fdopen(descriptor, "rb") as file:
        # None where there is nothing to read yet, as in files of the kernel.
        content = file.read(_MAX_BYTES + 1) or b""
    if len(content) > _MAX_BYTES:
        raise OSError(errno.EFBIG, f"larger than {_MAX_BYTES} bytes", os.fspath(path))
    return content


def parse_document(text: str) -> ConfigValue:
    """Parse the text of a configuration file.

    :raises ConfigError: when it is not JSON, is nested too deeply, or an object has a member twice.
    """
    try:
        document = json.loads(text, object_pairs_hook=_object, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise ConfigError(place, value=error.msg, allowed="a JSON document") from error
    except RecursionError:
        document = _TOO_DEEP
    except ConfigError:
        raise
    except ValueError as error:
        raise ConfigError("a number", value=str(error), allowed="a number of up to 4,300 digits") from error
    if document is _TOO_DEEP or _is_deep(document):
        raise ConfigError("the document", value="nested too deeply", allowed=f"up to {_MAX_DEPTH} values in each other")
    return ConfigValue("", document)


def _is_deep(document: object) -> bool:
    level = [document]
    for _ in range(_MAX_DEPTH):
        level = [
            inner
            for each in level
            for inner in (each.values() if isinstance(each, dict) else each if isinstance(each, list) else ())
        ]
    return len(level) > 0


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
    # Paths repeat them for each value below.
    long = next((name for name in members if len(name) > _MAX_NAME), None)
    if long is not None:
        raise ConfigError("a member", value=long, allowed=f"a name of up to {_MAX_NAME} characters")
    if len(members) != len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ConfigError(f"member {twice!r}", value="given twice in one object", allowed="each member once")
    return members


def _refuse_constant(constant: str) -> NoReturn:
    raise ConfigError("a number", value=constant, allowed="a number that JSON knows")
