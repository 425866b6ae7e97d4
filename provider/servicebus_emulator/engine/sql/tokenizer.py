"""The tokenizer of the rule language."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from servicebus_emulator.engine.sql.errors import SqlSyntaxError

END: Final = "the end"


class Kind(Enum):
    """The kind of a token."""

    NAME = auto()
    DELIMITED = auto()
    PARAMETER = auto()
    STRING = auto()
    INTEGER = auto()
    DOUBLE = auto()
    SYMBOL = auto()
    END = auto()


class Token(NamedTuple):
    """A token.

    :ivar text: its value: names and strings without delimiters, anything else as written.
    :ivar position: the index of its first character in the expression.
    """

    kind: Kind
    text: str
    position: int


_TOKEN: Final = re.compile(
    r"""(?P<space>\s+)
    |(?P<double>(?:\d+\.\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+)
    |(?P<integer>\d+)
    |(?P<parameter>@\w+)
    |(?P<name>[^\W\d]\w*)
    |(?P<string>'(?:[^']|'')*')
    |(?P<bracketed>\[(?:[^\]]|\]\])+\])
    |(?P<quoted>"(?:[^"]|"")+")
    |(?P<symbol><>|!=|<=|>=|[=<>+\-*/%(),.;])""",
    re.VERBOSE,
)
_KINDS: Final = {
    "double": Kind.DOUBLE,
    "integer": Kind.INTEGER,
    "parameter": Kind.PARAMETER,
    "name": Kind.NAME,
    "string": Kind.STRING,
    "bracketed": Kind.DELIMITED,
    "quoted": Kind.DELIMITED,
    "symbol": Kind.SYMBOL,
}
_UNTERMINATED: Final = {
    "'": "a string that ends with '",
    "[": "a name of at least one character that ends with ]",
    '"': 'a name of at least one character that ends with "',
    "@": "a parameter such as @limit",
}


def tokenize(text: str) -> list[Token]:
    """Split an expression into tokens; the last one is the end token.

    :raises SqlSyntaxError: at a character that does not begin a token.
    """
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            character = text[position]
            allowed = _UNTERMINATED.get(character, "names, numbers, 'strings', @parameters, operators and parentheses")
            raise SqlSyntaxError(position=position, found=repr(character), allowed=allowed)
        group = str(match.lastgroup)
        if group != "space":
            found.append(Token(_KINDS[group], _unquote(group, match[0]), position))
        position = match.end()
    found.append(Token(Kind.END, END, len(text)))
    return found


def _unquote(group: str, text: str) -> str:
    match group:
        case "string":
            return text[1:-1].replace("''", "'")
        case "bracketed":
            return text[1:-1].replace("]]", "]")
        case "quoted":
            return text[1:-1].replace('""', '"')
        case _:
            return text
