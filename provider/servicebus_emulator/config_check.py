"""``servicebus-emulator check FILE...``: checks configuration files without serving anything.

All mistakes of a file are found by reading it again without what was wrong.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
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
    line = line_of(file.read_text(encoding="utf-8-sig", errors="replace"), error.path)
    return f"{file}: {error}" if line is None else f"{file}:{line}: {error}"


def line_of(text: str, path: str) -> int | None:
    """Return the line of a value in a document, or of what it would be part of; None = the document is no JSON.

    :param path: such as ``UserConfig.Namespaces[0].Queues[1].Name``, or ``line 3, column 5``.
    """
    place = _PLACE.fullmatch(path)
    if place is not None:
        return int(place[1])
    try:
        json.loads(text)
    except ValueError:
        return None
    lines = dict(_lines(text))
    while path not in lines and path != "":
        # A missing member: the object that lacks it.
        path = re.sub(r"(?:\.?[^.\[\]]+|\[\d+\])\Z", "", path)
    return lines.get(path)


def _check(file: Path) -> tuple[str, list[str]]:
    """Return what is in a file, and its mistakes."""
    configs: Sequence[NamespaceConfig] = ()
    try:
        document = parse_document(read_text(file))
    except ConfigError as error:
        return "", [explain(file, error)]
    except OSError as error:
        return "", [f"{file}: cannot be read: {error.strerror}"]
    errors = list(_missing_targets(document.value))
    left_out: set[str] = set()
    while True:
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
    lines = [(line_of(read_text(file), error.path) or 0, explain(file, error)) for error in errors]
    return f"{file}: valid: {'; '.join(map(_summary, configs))}", [text for _, text in sorted(lines)]


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
        members = list(_members(namespace, path=f"UserConfig.Namespaces[{number}]"))
        names = {str(value).casefold() for path, value in members if _ENTITY_NAME.search(path) is not None}
        for path, value in members:
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
    tokens = [(match[0], text.count("\n", 0, match.start()) + 1) for match in _TOKEN.finditer(text)]
    # What is open: the path, and the position of the next item (None = an object).
    stack: list[tuple[str, int | None]] = []
    path, at = "", 0
    while at < len(tokens):
        word, line = tokens[at]
        at += 1
        if word in "}]":
            stack.pop()
            continue
        if word == ",":
            prefix, position = stack[-1]
            if position is not None:
                stack[-1] = (prefix, position + 1)
            continue
        if len(stack) > 0:
            prefix, position = stack[-1]
            if position is None:
                name = json.loads(word)
                path = name if prefix == "" else f"{prefix}.{name}"
                # The name and the colon; the value follows.
                word, _ = tokens[at + 1]
                at += 2
            else:
                path = f"{prefix}[{position}]"
        yield path, line
        if word in "{[":
            stack.append((path, None if word == "{" else 0))
