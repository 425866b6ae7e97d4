"""The recursive-descent parser of filters and actions.

The service's quotas apply: 1,024 characters per filter or action, 32 statements per action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from servicebus_emulator.engine.sql import nodes
from servicebus_emulator.engine.sql.errors import SqlSyntaxError
from servicebus_emulator.engine.sql.nodes import Expression, Predicate, Property, Scope, Statement
from servicebus_emulator.engine.sql.properties import SYSTEM_PROPERTIES, WRITABLE_PROPERTIES
from servicebus_emulator.engine.sql.tokenizer import END, Kind, Token, tokenize
from servicebus_emulator.engine.sql.values import SqlValue

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

MAX_LENGTH: Final = 1024
MAX_STATEMENTS: Final = 32

_MAX_DEPTH: Final = 32
_INT64: Final = 2**63
_RESERVED: Final = frozenset(
    {"and", "or", "not", "in", "like", "escape", "is", "null", "exists", "true", "false", "set", "remove"}
)
_COMPARISONS: Final = {"=": "=", "<>": "<>", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
_AFTER_EXPRESSION: Final = "a comparison (= <> != > >= < <=), IS, IN, LIKE or NOT after a value"
_VALUE: Final = "a constant, a property, a parameter or a parenthesis"


def parse_filter(text: str, *, parameters: Mapping[str, SqlValue]) -> Predicate:
    """Parse the expression of a filter.

    :param text: at most 1,024 characters.
    :param parameters: the values of ``@name``, by name including the ``@``.
    :raises SqlSyntaxError: when the expression is invalid.
    """
    parser = _Parser(text, parameters=parameters)
    predicate = parser.predicate()
    parser.expect_end("AND, OR or the end")
    return predicate


def parse_action(text: str, *, parameters: Mapping[str, SqlValue]) -> tuple[Statement, ...]:
    """Parse the statements of an action; they may be separated by semicolons or commas.

    :param text: at most 1,024 characters, at most 32 statements.
    :param parameters: the values of ``@name``, by name including the ``@``.
    :raises SqlSyntaxError: when the expression is invalid.
    """
    return _Parser(text, parameters=parameters).statements()


class _Parser:
    def __init__(self, text: str, *, parameters: Mapping[str, SqlValue]) -> None:
        if len(text) > MAX_LENGTH:
            raise SqlSyntaxError(
                position=MAX_LENGTH, found=f"an expression of {len(text)} characters", allowed=f"at most {MAX_LENGTH}"
            )
        self._tokens = tokenize(text)
        self._at = 0
        self._depth = 0
        self._parameters = {name.casefold(): value for name, value in parameters.items()}

    # Statements

    def statements(self) -> tuple[Statement, ...]:
        found: list[Statement] = []
        while self._token.kind is not Kind.END:
            if len(found) == MAX_STATEMENTS:
                raise self._error(f"the end: an action has at most {MAX_STATEMENTS} statements")
            found.append(self._statement())
            while self._skip_symbol(";", ","):
                pass
        if len(found) == 0:
            raise self._error("SET or REMOVE")
        return tuple(found)

    def _statement(self) -> Statement:
        if self._skip_word("set"):
            target = self._target()
            if not self._skip_symbol("="):
                raise self._error("= after the property of SET")
            return nodes.Set(target, self._value())
        if self._skip_word("remove"):
            return nodes.Remove(self._target())
        raise self._error("SET or REMOVE")

    def _target(self) -> Property:
        start = self._token
        target = self._property()
        if target.scope is Scope.SYSTEM and target.name.casefold() not in WRITABLE_PROPERTIES:
            allowed = f"an action may change sys. {', '.join(WRITABLE_PROPERTIES.values())}"
            raise SqlSyntaxError(position=start.position, found=f"sys.{target.name}", allowed=allowed)
        return target

    # Predicates

    def predicate(self) -> Predicate:
        """Parse a predicate."""
        start = self._token
        return self._as_predicate(self._or(), start=start)

    def _or(self) -> Predicate | Expression:
        return self._chain("or", lambda: self._chain("and", self._not, make=nodes.And), make=nodes.Or)

    def _chain(
        self,
        word: str,
        operand: Callable[[], Predicate | Expression],
        *,
        make: Callable[[tuple[Predicate, ...]], Predicate],
    ) -> Predicate | Expression:
        start = self._token
        first = operand()
        if not self._is_word(word):
            return first
        operands = [self._as_predicate(first, start=start)]
        while self._skip_word(word):
            start = self._token
            operands.append(self._as_predicate(operand(), start=start))
        return make(tuple(operands))

    def _not(self) -> Predicate | Expression:
        if not self._skip_word("not"):
            return self._test()
        with self._nested():
            start = self._token
            return nodes.Not(self._as_predicate(self._not(), start=start))

    def _test(self) -> Predicate | Expression:
        if self._skip_word("exists"):
            return nodes.Exists(self._parenthesised(self._property))
        start = self._token
        left = self._sum()
        sign = _COMPARISONS.get(self._token.text) if self._token.kind is Kind.SYMBOL else None
        if sign is None and not any(self._is_word(word) for word in ("is", "not", "in", "like")):
            return left
        operand = self._as_expression(left, start=start)
        if sign is not None:
            self._at += 1
            return nodes.Comparison(sign, operand, self._value())
        if self._skip_word("is"):
            return self._is_null(operand)
        return self._in_or_like(operand, negated=self._skip_word("not"))

    def _is_null(self, operand: Expression) -> Predicate:
        if not isinstance(operand, Property):
            raise self._error("IS after a property only", at=self._at - 1)
        negated = self._skip_word("not")
        if not self._skip_word("null"):
            raise self._error("NULL or NOT NULL after IS")
        return nodes.IsNull(operand, negated)

    def _in_or_like(self, operand: Expression, *, negated: bool) -> Predicate:
        if self._skip_word("in"):
            return nodes.In(operand, self._parenthesised(self._items), negated)
        if not self._skip_word("like"):
            raise self._error("IN or LIKE")
        pattern = self._value()
        return nodes.Like(operand, pattern, self._value() if self._skip_word("escape") else None, negated)

    def _items(self) -> tuple[Expression, ...]:
        items = [self._value()]
        while self._skip_symbol(","):
            items.append(self._value())
        return tuple(items)

    # Expressions

    def _value(self) -> Expression:
        start = self._token
        return self._as_expression(self._sum(), start=start)

    def _sum(self) -> Predicate | Expression:
        return self._arithmetic(lambda: self._arithmetic(self._signed, signs=("*", "/", "%")), signs=("+", "-"))

    def _arithmetic(
        self, operand: Callable[[], Predicate | Expression], *, signs: tuple[str, ...]
    ) -> Predicate | Expression:
        start = self._token
        first = operand()
        rest: list[tuple[str, Expression]] = []
        while self._token.kind is Kind.SYMBOL and self._token.text in signs:
            sign = self._next().text
            at = self._token
            rest.append((sign, self._as_expression(operand(), start=at)))
        return first if len(rest) == 0 else nodes.Arithmetic(self._as_expression(first, start=start), tuple(rest))

    def _signed(self) -> Predicate | Expression:
        negative = self._is_symbol("-")
        if not self._skip_symbol("+", "-"):
            return self._primary()
        if negative and self._token.kind is Kind.INTEGER:
            return nodes.Constant(self._integer(self._next(), sign=-1))
        with self._nested():
            start = self._token
            return nodes.Sign(negative, self._as_expression(self._signed(), start=start))

    def _primary(self) -> Predicate | Expression:
        token = self._token
        match token.kind:
            case Kind.SYMBOL if token.text == "(":
                return self._parenthesised(self._or)
            case Kind.NAME if token.text.casefold() in {"true", "false", "null"}:
                word = self._next().text.casefold()
                return nodes.Constant(None if word == "null" else word == "true")
            case Kind.NAME if token.text.casefold() not in _RESERVED and self._follows("("):
                return self._function()
            case Kind.NAME | Kind.DELIMITED:
                return self._property()
            case Kind.STRING | Kind.INTEGER | Kind.DOUBLE | Kind.PARAMETER:
                return nodes.Constant(self._constant(self._next()))
            case _:
                raise self._error(_VALUE)

    def _function(self) -> Expression:
        name = self._next()
        match name.text.casefold():
            case "newid":
                self._parenthesised(lambda: None)
                return nodes.NewId()
            case "property" | "p":
                return nodes.ComputedProperty(self._parenthesised(self._value))
            case _:
                raise self._error("the functions newid(), property(name) and p(name)", at=self._at - 1)

    def _property(self) -> Property:
        scope = Scope.USER
        if self._token.kind is Kind.NAME and self._follows("."):
            if self._token.text.casefold() not in {each.value for each in Scope}:
                raise self._error("the scopes sys and user, or [a.name] in brackets")
            scope = Scope(self._next().text.casefold())
            self._at += 1
        token = self._token
        reserved = token.kind is Kind.NAME and token.text.casefold() in _RESERVED
        if token.kind not in {Kind.NAME, Kind.DELIMITED} or reserved:
            raise self._error("the name of a property; a reserved word must be in [brackets]" if reserved else _VALUE)
        if scope is Scope.SYSTEM and token.text.casefold() not in SYSTEM_PROPERTIES:
            raise self._error(f"the system properties {', '.join(SYSTEM_PROPERTIES.values())}")
        self._at += 1
        return Property(scope, token.text)

    def _constant(self, token: Token) -> SqlValue:
        match token.kind:
            case Kind.INTEGER:
                return self._integer(token, sign=1)
            case Kind.DOUBLE:
                return float(token.text)
            case Kind.PARAMETER:
                if token.text.casefold() not in self._parameters:
                    known = ", ".join(self._parameters) or "none"
                    raise self._error(f"the parameters of the rule: {known}", at=self._at - 1)
                return self._parameters[token.text.casefold()]
            case _:
                return token.text

    def _integer(self, token: Token, *, sign: int) -> int:
        value = sign * int(token.text)
        if not -_INT64 <= value < _INT64:
            raise self._error("a whole number of 64 bits", at=self._at - 1)
        return value

    # Helpers

    @property
    def _token(self) -> Token:
        return self._tokens[self._at]

    def _next(self) -> Token:
        token = self._token
        self._at += 1
        return token

    def _follows(self, symbol: str) -> bool:
        following = self._tokens[self._at + 1]
        return following.kind is Kind.SYMBOL and following.text == symbol

    def _is_word(self, word: str) -> bool:
        return self._token.kind is Kind.NAME and self._token.text.casefold() == word

    def _is_symbol(self, symbol: str) -> bool:
        return self._token.kind is Kind.SYMBOL and self._token.text == symbol

    def _skip_word(self, word: str) -> bool:
        found = self._is_word(word)
        self._at += found
        return found

    def _skip_symbol(self, *symbols: str) -> bool:
        found = any(self._is_symbol(symbol) for symbol in symbols)
        self._at += found
        return found

    def _parenthesised(self, read: Callable[[], T]) -> T:
        if not self._skip_symbol("("):
            raise self._error("(")
        with self._nested():
            inner = read()
        if not self._skip_symbol(")"):
            raise self._error(")")
        return inner

    @contextmanager
    def _nested(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise self._error(f"at most {_MAX_DEPTH} levels of parentheses, NOT and signs")
        yield
        self._depth -= 1

    def _as_predicate(self, node: Predicate | Expression, *, start: Token) -> Predicate:
        if isinstance(node, Predicate):
            return node
        if start.kind is Kind.END:
            raise self._error("a condition")
        raise self._error(_AFTER_EXPRESSION)

    def _as_expression(self, node: Predicate | Expression, *, start: Token) -> Expression:
        if isinstance(node, Predicate):
            raise SqlSyntaxError(position=start.position, found="a condition", allowed="a value")
        return node

    def expect_end(self, allowed: str) -> None:
        """Raise an error unless all tokens have been parsed."""
        if self._token.kind is not Kind.END:
            raise self._error(allowed)

    def _error(self, allowed: str, *, at: int | None = None) -> SqlSyntaxError:
        token = self._tokens[self._at if at is None else at]
        found = END if token.kind is Kind.END else repr(token.text)
        return SqlSyntaxError(position=token.position, found=found, allowed=allowed)
