"""Evaluation of filters and actions against the properties of a message.

Conditions are true, false or unknown (None), with the truth tables of "Subscription Rule SQL Filter Syntax". A filter
matches a message only when it is true.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import assert_never
from uuid import UUID

from servicebus_emulator.engine.sql import nodes
from servicebus_emulator.engine.sql.errors import SqlEvaluationError
from servicebus_emulator.engine.sql.nodes import Expression, Predicate, Property, Scope, Statement
from servicebus_emulator.engine.sql.pattern import like
from servicebus_emulator.engine.sql.properties import MessageProperties
from servicebus_emulator.engine.sql.values import SqlValue, calculate, compare, equal, negate, to_text


class Evaluator:
    """Evaluates predicates and actions.

    :param new_uuid: returns a new UUID, for ``newid()``.
    """

    def __init__(self, *, new_uuid: Callable[[], UUID]) -> None:
        self._new_uuid = new_uuid

    def evaluate(self, predicate: Predicate, properties: MessageProperties) -> bool | None:
        """Return whether a predicate is true, false or unknown (None) for a message.

        :raises SqlEvaluationError: when it cannot be evaluated for this message.
        """
        match predicate:
            case nodes.Comparison():
                left = self._value(predicate.left, properties)
                return compare(predicate.operator, left, self._value(predicate.right, properties))
            case nodes.And():
                return self._all(predicate.operands, properties)
            case nodes.Or():
                return self._any(predicate.operands, properties)
            case nodes.Not():
                value = self.evaluate(predicate.operand, properties)
                return None if value is None else not value
            case nodes.In():
                return self._is_in(predicate, properties)
            case nodes.Like():
                return self._is_like(predicate, properties)
            case nodes.IsNull():
                return (_property(predicate.operand, properties) is None) is not predicate.negated
            case nodes.Exists():
                return _exists(predicate.operand, properties)
            case _:
                assert_never(predicate)

    def apply(self, statements: tuple[Statement, ...], properties: MessageProperties) -> MessageProperties:
        """Return the properties after an action. Each statement sees the changes of the previous ones.

        :raises SqlEvaluationError: when a statement cannot be evaluated for this message.
        """
        return reduce(self._execute, statements, properties)

    def _execute(self, properties: MessageProperties, statement: Statement) -> MessageProperties:
        target = statement.target
        if isinstance(statement, nodes.Remove):
            if target.scope is Scope.SYSTEM:
                return properties.with_system(target.name, None)
            return properties.without_user(target.name)
        value = self._value(statement.value, properties)
        if target.scope is Scope.SYSTEM:
            # All writable system properties are strings; the service documents this implicit conversion.
            return properties.with_system(target.name, None if value is None else to_text(value))
        return properties.with_user(target.name, value)

    def _all(self, operands: tuple[Predicate, ...], properties: MessageProperties) -> bool | None:
        result: bool | None = True
        for operand in operands:
            value = self.evaluate(operand, properties)
            if value is False:
                return False
            result = result and value
        return result

    def _any(self, operands: tuple[Predicate, ...], properties: MessageProperties) -> bool | None:
        result: bool | None = False
        for operand in operands:
            value = self.evaluate(operand, properties)
            if value is True:
                return True
            result = None if value is None else result
        return result

    def _is_in(self, predicate: nodes.In, properties: MessageProperties) -> bool | None:
        operand = self._value(predicate.operand, properties)
        if operand is None:
            return None
        found = any(equal(operand, self._value(item, properties)) for item in predicate.items)
        return found is not predicate.negated

    def _is_like(self, predicate: nodes.Like, properties: MessageProperties) -> bool | None:
        operand = self._value(predicate.operand, properties)
        pattern = self._value(predicate.pattern, properties)
        escape = "" if predicate.escape is None else self._value(predicate.escape, properties)
        if operand is None or pattern is None or escape is None:
            return None
        if not isinstance(pattern, str) or not isinstance(escape, str):
            raise SqlEvaluationError("the pattern or escape character of LIKE is not a string")
        if predicate.escape is not None and len(escape) != 1:
            raise SqlEvaluationError(f"the escape character of LIKE has {len(escape)} characters; allowed: one")
        if not isinstance(operand, str):
            return None
        return like(operand, pattern=pattern, escape=escape) is not predicate.negated

    def _value(self, expression: Expression, properties: MessageProperties) -> SqlValue:
        match expression:
            case nodes.Constant():
                return expression.value
            case nodes.Property():
                return _property(expression, properties)
            case nodes.ComputedProperty():
                name = self._value(expression.name, properties)
                if not isinstance(name, str):
                    raise SqlEvaluationError("the argument of property() is not a string")
                return properties.user_value(name)
            case nodes.NewId():
                return self._new_uuid()
            case nodes.Sign():
                operand = self._value(expression.operand, properties)
                return negate(operand) if expression.negative else operand
            case nodes.Arithmetic():
                value = self._value(expression.first, properties)
                for sign, term in expression.rest:
                    value = calculate(sign, value, self._value(term, properties))
                return value
            case _:
                assert_never(expression)


def _property(operand: Property, properties: MessageProperties) -> SqlValue:
    if operand.scope is Scope.SYSTEM:
        return properties.system_value(operand.name)
    return properties.user_value(operand.name)


def _exists(operand: Property, properties: MessageProperties) -> bool:
    if operand.scope is Scope.SYSTEM:
        return properties.system_value(operand.name) is not None
    return properties.spelling(operand.name) is not None
