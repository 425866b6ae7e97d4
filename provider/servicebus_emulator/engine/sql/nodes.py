"""The syntax tree of filters and actions: frozen, without behaviour.

Chains such as ``a + b - c`` and ``p AND q AND r`` are one flat node, so that the depth of a tree is that of
its parentheses and signs, which the parser bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from servicebus_emulator.engine.sql.values import SqlValue

__all__ = [
    "And",
    "Arithmetic",
    "Comparison",
    "Constant",
    "Exists",
    "Expression",
    "In",
    "IsNull",
    "Like",
    "NewId",
    "Not",
    "Or",
    "Predicate",
    "Property",
    "PropertyNamed",
    "Remove",
    "Scope",
    "Set",
    "Sign",
    "Statement",
]


class Scope(StrEnum):
    """Whose property is meant: the message's own or the application's."""

    SYSTEM = "sys"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal, or the value of a parameter."""

    value: SqlValue


@dataclass(frozen=True, slots=True)
class Property:
    """A property by its name, as it was written."""

    scope: Scope
    name: str


@dataclass(frozen=True, slots=True)
class PropertyNamed:
    """``property(expression)``: the application property whose name an expression yields."""

    name: Expression


@dataclass(frozen=True, slots=True)
class NewId:
    """``newid()``: a new random UUID."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A sign before an expression."""

    negative: bool
    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Operators of one precedence, applied from left to right."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]


Expression = Constant | Property | PropertyNamed | NewId | Sign | Arithmetic


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left operator right``, where the operator is one of ``= <> > >= < <=``."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class IsNull:
    """``property IS [NOT] NULL``."""

    operand: Property
    negated: bool


@dataclass(frozen=True, slots=True)
class In:
    """``operand [NOT] IN (item, ...)``."""

    operand: Expression
    items: tuple[Expression, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Like:
    """``operand [NOT] LIKE pattern [ESCAPE escape]``."""

    operand: Expression
    pattern: Expression
    escape: Expression | None
    negated: bool


@dataclass(frozen=True, slots=True)
class Exists:
    """``EXISTS(property)``."""

    operand: Property


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT predicate``."""

    operand: Predicate


@dataclass(frozen=True, slots=True)
class And:
    """``p AND q AND ...``."""

    operands: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """``p OR q OR ...``."""

    operands: tuple[Predicate, ...]


Predicate = Comparison | IsNull | In | Like | Exists | Not | And | Or


@dataclass(frozen=True, slots=True)
class Set:
    """``SET property = expression``."""

    target: Property
    value: Expression


@dataclass(frozen=True, slots=True)
class Remove:
    """``REMOVE property``."""

    target: Property


Statement = Set | Remove
