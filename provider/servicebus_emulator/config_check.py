"""``servicebus-emulator check FILE...``: checks configuration files without serving anything.

All mistakes of a file are found by reading it again without what was wrong.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from servicebus_emulator.config import ConfigError, NamespaceConfig, read_config, read_text
from servicebus_emulator.config_values import LEFT_OUT, ConfigValue, parse_document
from servicebus_emulator.engine.model.entity_names import entity_path_of

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_PLACE: Final = re.compile(r"line (\d+), column \d+")
_STEP: Final = re.compile(r"([^.\[\]]+)|\[(\d+)\]")
_FORWARDING: Final = (".ForwardTo", ".ForwardDeadLetteredMessagesTo")
_NAMES: Final = ("Name", "KeyName")
_NAME_LENGTH: Final = 30
# To find a mistake the file is read again without those found before.
_MOST_MISTAKES: Final = 100
_MOST_READ: Final = 5_000_000
_LONGEST_PATH: Final = 5_000
_ENTITY_NAME: Final = re.compile(r"\]\.(?:Queues|Topics)\[\d+\]\.Name\Z")


def check_files(files: Sequence[Path]) -> int:
    """Print what is in each file, or line and reason of each mistake; return the exit status."""
    status = 0
    for file in files:
        summary, mistakes = _check(file)
        for line in mistakes or [summary]:
            print(line, file=sys.stdout if len(mistakes) == 0 else sys.stderr)
        status = max(status, int(len(mistakes) > 0))
    return status


def explain(file: Path, error: ConfigError) -> str:
    """Return an error with its place, such as ``config.json:12: ...LockDuration is 'PT6M'; allowed: ...``."""
    try:
        return _located(file, error, line_of(read_text(file), error.path))
    except (ConfigError, OSError):
        return _located(file, error, None)


def line_of(text: str, path: str) -> int | None:
    """Return the line of a value in a document, or of what it would be part of; None = the document is no JSON.

    :param path: such as ``UserConfig.Namespaces[0].Queues[1].Name``, or ``line 3, column 5``.
    """
    place = _PLACE.fullmatch(path)
    if place is not None:
        return int(place[1])
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return None
    return _places(text, [path])[path]


def _check(file: Path) -> tuple[str, list[str]]:
    """Return what is in a file, and its mistakes."""
    configs: Sequence[NamespaceConfig] = ()
    try:
        text = read_text(file)
        document = parse_document(text)
    except ConfigError as error:
        return "", [explain(file, error)]
    except OSError as error:
        return "", [f"{file}: cannot be read: {error.strerror}"]
    errors = list(islice(_missing_targets(document.value), _MOST_MISTAKES))
    left_out: set[str] = set()
    more: list[str] = []
    for _ in range(min(_MOST_MISTAKES, 1 + _MOST_READ // len(text))):
        try:
            configs = read_config(document)
            break
        except ConfigError as error:
            # What was left out is not missing, nor is what contains it incomplete.
            if not any(each.startswith(error.path) for each in left_out):
                errors.append(error)
            left_out.add(error.path)
            if not _leave_out(document, error.path):
                break
    else:
        more.append(f"{file}: there may be more: correct these first")
    places = _places(text, [error.path for error in errors])
    lines = [(places[error.path] or 0, _located(file, error, places[error.path])) for error in errors]
    return f"{file}: valid: {'; '.join(map(_summary, configs))}", [line for _, line in sorted(lines)] + more


def _located(file: Path, error: ConfigError, line: int | None) -> str:
    return f"{file}: {error}" if line is None else f"{file}:{line}: {error}"


def _places(text: str, paths: Sequence[str]) -> dict[str, int | None]:
    """Return the line of each value of a valid document, or of what it would be part of."""
    chains = {path: list(_self_and_containers(path)) for path in paths}
    wanted = {each for chain in chains.values() for each in chain}
    found = {path: line for path, line in _lines(text) if path in wanted} if len(wanted) > 0 else {}
    # A missing member: the object that lacks it.
    return {path: next((found[each] for each in chain if each in found), None) for path, chain in chains.items()}


def _self_and_containers(path: str) -> Iterator[str]:
    yield path
    path = path[:_LONGEST_PATH]
    while path != "":
        path = path[: max(path.rfind("."), path.rfind("["), 0)]
        yield path


def _leave_out(document: ConfigValue, path: str) -> bool:
    """Take a value, or the innermost of what should contain it, out of a document; return whether it has changed.

    A name gets another one, so that the rest of what has it is still read.
    """
    holder: Any = None
    key: Any = None
    value: Any = document.value
    for name, index in _STEP.findall(path):
        step = int(index) if index else name
        if name in _NAMES and isinstance(value, dict):
            value[name] = f"name-{uuid4()}"[:_NAME_LENGTH]
            return True
        if not ((isinstance(value, dict) and step in value) or (isinstance(value, list) and index)):
            break
        holder, key, value = value, step, value[step]
    if isinstance(holder, list):
        holder[key] = LEFT_OUT
    elif isinstance(holder, dict):
        del holder[key]
    return holder is not None


def _missing_targets(document: object) -> Iterator[ConfigError]:
    """Yield the forwarding targets that no entity of their namespace is."""
    user = document.get("UserConfig") if isinstance(document, dict) else None
    namespaces = user.get("Namespaces") if isinstance(user, dict) else None
    for number, namespace in enumerate(namespaces if isinstance(namespaces, list) else ()):
        root = f"UserConfig.Namespaces[{number}]"
        entities = (value for path, value in _members(namespace, path=root) if _ENTITY_NAME.search(path) is not None)
        names = {str(value).casefold() for value in entities}
        for path, value in _members(namespace, path=root):
            is_target = path.endswith(_FORWARDING) and isinstance(value, str) and value != ""
            if is_target and entity_path_of(str(value)).casefold() not in names:
                yield ConfigError(path, value=value, allowed="a queue or topic of this namespace")


def _members(value: object, *, path: str) -> Iterator[tuple[str, object]]:
    yield path, value
    inner = [(f".{name}", each) for name, each in value.items()] if isinstance(value, dict) else []
    inner += [(f"[{number}]", each) for number, each in enumerate(value)] if isinstance(value, list) else []
    for step, each in inner:
        yield from _members(each, path=path + step)


def _summary(config: NamespaceConfig) -> str:
    counts = {"queues": config.queues, "topics": config.topics, "subscriptions": config.subscriptions}
    return f"namespace {config.name} with " + ", ".join(f"{len(items)} {kind}" for kind, items in counts.items())


def _lines(text: str) -> Iterator[tuple[str, int]]:
    """Yield the path and line of each value of a valid document."""
    # What is open: the path, and the position of the next item (None = an object).
    stack: list[tuple[str, int | None]] = []
    path = ""
    tokens = _tokens(text)
    for word, line in tokens:
        if word in "}]":
            stack.pop()
            continue
        if word == ",":
            prefix, position = stack[-1]
            if position is not None:
                stack[-1] = (prefix, position + 1)
            continue
        opening = word
        if len(stack) > 0:
            prefix, position = stack[-1]
            if position is None:
                name = json.loads(word)
                path = name if prefix == "" else f"{prefix}.{name}"
                # The name and the colon; the value follows.
                next(tokens)
                opening, _ = next(tokens)
            else:
                path = f"{prefix}[{position}]"
        yield path, line
        if opening in "{[":
            stack.append((path, None if opening == "{" else 0))


def _tokens(text: str) -> Iterator[tuple[str, int]]:
    line, counted = 1, 0
    for match in _TOKEN.finditer(text):
        line, counted = line + text.count("\n", counted, match.start()), match.start()
        yield match[0], line
