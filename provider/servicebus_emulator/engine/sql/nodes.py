"""The nodes of the syntax tree of filters and actions.

Chains such as ``a + b - c`` and ``p AND q AND r`` are one flat node, so that the depth of a tree is limited by the
nesting depth that the parser allows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from servicebus_emulator.engine.sql.values import SqlValue


class Scope(StrEnum):
    """Whether a property is a system or an application property."""

    SYSTEM = "sys"
    USER = "user"


@dataclass(frozen=True, slots=True)
class Constant:
    """A literal or the value of a parameter."""

    value: SqlValue


@dataclass(frozen=True, slots=True)
class Property:
    """A property, with its name as written."""

    scope: Scope
    name: str


@dataclass(frozen=True, slots=True)
class ComputedProperty:
    """``property(expression)``: the application property with a computed name."""

    name: Expression


@dataclass(frozen=True, slots=True)
class NewId:
    """``newid()``: a new random UUID."""


@dataclass(frozen=True, slots=True)
class Sign:
    """A unary ``+`` or ``-``."""

    negative: bool
    operand: Expression


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Binary operators of the same precedence, applied from left to right."""

    first: Expression
    rest: tuple[tuple[str, Expression], ...]


Expression = Constant | Property | ComputedProperty | NewId | Sign | Arithmetic


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
