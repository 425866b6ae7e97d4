"""``servicebus-emulator check FILE...``: checks configuration files without serving anything."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from servicebus_emulator.config import ConfigError, NamespaceConfig, load_config

__all__ = ["check_files", "explain", "line_of"]

_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')
_PLACE: Final = re.compile(r"line (\d+), column \d+")


def check_files(files: Sequence[Path]) -> int:
    """Print what is in each file, or its line and the reason why it is invalid; return the exit status."""
    found = [_check(file) for file in files]
    for line, is_valid in found:
        print(line, file=sys.stdout if is_valid else sys.stderr)
    return 0 if all(is_valid for _, is_valid in found) else 1


def explain(file: Path, error: ConfigError) -> str:
    """Return an error with its place, such as ``config.json:12: ...LockDuration is 'PT6M'; allowed: ...``."""
    line = line_of(file.read_text(encoding="utf-8", errors="replace"), error.path)
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


def _check(file: Path) -> tuple[str, bool]:
    try:
        configs = load_config(file)
    except ConfigError as error:
        return explain(file, error), False
    except OSError as error:
        return f"{file}: cannot be read: {error.strerror}", False
    return f"{file}: valid: {'; '.join(map(_summary, configs))}", True


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
