"""The words of the rule language."""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import Final, NamedTuple

from servicebus_emulator.engine.sql.errors import SqlSyntaxError

__all__ = ["END", "Kind", "Token", "tokens"]

END: Final = "the end"


class Kind(Enum):
    """What sort of word a token is."""

    NAME = auto()
    DELIMITED = auto()
    PARAMETER = auto()
    STRING = auto()
    INTEGER = auto()
    DOUBLE = auto()
    SYMBOL = auto()
    END = auto()


class Token(NamedTuple):
    """A word.

    :ivar text: what it means: a delimited name or a string without its quotes, a symbol as it is written.
    :ivar position: the index of its first character in the expression.
    """

    kind: Kind
    text: str
    position: int


_WORD: Final = re.compile(
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
_UNFINISHED: Final = {
    "'": "a string that ends with '",
    "[": "a name of at least one character that ends with ]",
    '"': 'a name of at least one character that ends with "',
    "@": "a parameter such as @limit",
}


def tokens(text: str) -> list[Token]:
    """Split an expression into its words; the last one is the end.

    :raises SqlSyntaxError: at a character that begins no word.
    """
    found: list[Token] = []
    position = 0
    while position < len(text):
        match = _WORD.match(text, position)
        if match is None:
            character = text[position]
            allowed = _UNFINISHED.get(character, "names, numbers, 'strings', @parameters, operators and parentheses")
            raise SqlSyntaxError(position=position, found=repr(character), allowed=allowed)
        group = str(match.lastgroup)
        if group != "space":
            found.append(Token(_KINDS[group], _meaning(group, match[0]), position))
        position = match.end()
    found.append(Token(Kind.END, END, len(text)))
    return found


def _meaning(group: str, word: str) -> str:
    match group:
        case "string":
            return word[1:-1].replace("''", "'")
        case "bracketed":
            return word[1:-1].replace("]]", "]")
        case "quoted":
            return word[1:-1].replace('""', '"')
        case _:
            return word
