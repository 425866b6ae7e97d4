"""Evaluation of filters and actions, and LIKE patterns."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator.engine.sql.errors import SqlEvaluationError
from servicebus_emulator.engine.sql.evaluation import Evaluator
from servicebus_emulator.engine.sql.parser import parse_action, parse_filter
from servicebus_emulator.engine.sql.pattern import like
from servicebus_emulator.engine.sql.properties import MessageProperties
from servicebus_emulator.engine.sql.values import SqlValue

NEW_ID = UUID(int=7)
EVALUATOR = Evaluator(new_uuid=lambda: NEW_ID)
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
MESSAGE = MessageProperties(
    system={"label": "bus stop", "messageid": "m1", "sessionid": None},
    user={
        "Color": "red",
        "n": 5,
        "x": 2.5,
        "late": True,
        "empty": None,
        "when": NOON,
        "id": NEW_ID,
        "HR-EmployeeID": 7,
        "it's": "O'Hare",
        "a]b": 1,
        "100%": "100%",
    },
)
UNKNOWN = None


def evaluate(text: str, message: MessageProperties = MESSAGE, **parameters: SqlValue) -> bool | None:
    named = {f"@{name}": value for name, value in parameters.items()}
    return EVALUATOR.evaluate(parse_filter(text, parameters=named), message)


def apply(text: str, message: MessageProperties = MESSAGE, **parameters: SqlValue) -> MessageProperties:
    named = {f"@{name}": value for name, value in parameters.items()}
    return EVALUATOR.apply(parse_action(text, parameters=named), message)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1=1", True),
        ("1=0", False),
        ("1>1", False),
        ("Color = 'red'", True),
        ("color = 'red'", True),
        ("COLOR = 'Red'", False),
        ("user.Color <> 'blue'", True),
        ("USER.Color != 'red'", False),
        ("sys.Label = 'bus stop'", True),
        ("sys.subject = 'bus stop'", True),
        ("SYS.label = 'bus'", False),
        ("label = 'bus stop'", UNKNOWN),
        ("sys.SessionId = 's'", UNKNOWN),
        ("n >= 5 AND n < 6 AND n <= 5 AND n > 4", True),
        ("n = 5.0", True),
        ("x = 2.5 AND x = 25E-1 AND x = .25e1", True),
        ("late = TRUE", True),
        ("late = false", False),
        ("id = newid()", True),
        ("[HR-EmployeeID] = 7", True),
        ("[a]]b] = 1", True),
        ("\"it's\" = 'O''Hare'", True),
        ("user.[HR-EmployeeID] = 7", True),
        ("property('col' + 'or') = 'red' AND p('n') = 5", True),
        ("when > @before AND when = @noon", True),
        ("-n = -5 AND +n = 5 AND - -n = 5", True),
        ("n + 2 * 3 = 11 AND (n + 2) * 3 = 21", True),
        ("n - 1 - 1 = 3 AND n / 2 = 2 AND -n / 2 = -2 AND n % 3 = 2 AND -n % 3 = -2", True),
        ("x / 0 > 1000000", True),
        ("Color + '-' + n = 'red-5'", True),
        ("-9223372036854775808 < 9223372036854775807", True),
        ("missing = 1", UNKNOWN),
        ("NOT missing = 1", UNKNOWN),
        ("missing + 1 = 2", UNKNOWN),
        ("-missing = 2", UNKNOWN),
        ("empty = NULL", UNKNOWN),
        ("n = '5'", UNKNOWN),
        ("late > FALSE", UNKNOWN),
        ("missing = 1 OR n = 5", True),
        ("missing = 1 AND n = 6", False),
        ("missing = 1 AND n = 5", UNKNOWN),
        ("n = 6 OR missing = 1", UNKNOWN),
        ("n = 6 OR n = 5 AND Color = 'blue'", False),
        ("(n = 5 OR n = 6) AND Color = 'red'", True),
        ("NOT (n = 5)", False),
        ("NOT NOT n = 5", True),
        ("missing IS NULL AND empty IS NULL AND n IS NOT NULL", True),
        ("sys.SessionId IS NULL AND sys.MessageId IS NOT NULL", True),
        ("EXISTS(n) AND exists ( COLOR ) AND EXISTS(empty)", True),
        ("EXISTS(missing)", False),
        ("EXISTS(sys.ReplyTo) OR EXISTS(sys.SessionId)", False),
        ("n IN (1, 5.0, 'red')", True),
        ("n NOT IN (1, 2)", True),
        ("n NOT IN (1, missing)", True),
        ("missing IN (1)", UNKNOWN),
        ("missing NOT IN (1)", UNKNOWN),
        ("Color IN ('RED')", False),
        ("Color LIKE 'r%'", True),
        ("Color LIKE 'R%'", False),
        ("Color NOT LIKE '_e_'", False),
        ("Color LIKE 're'", False),
        ("[100%] LIKE '100\\%' ESCAPE '\\'", True),
        ("Color LIKE 're\\%' ESCAPE '\\'", False),
        ("missing LIKE '%'", UNKNOWN),
        ("Color LIKE missing", UNKNOWN),
        ("n LIKE '5'", UNKNOWN),
    ],
)
def test_a_predicate_is_true_false_or_unknown(text: str, expected: bool | None):
    assert evaluate(text, noon=NOON, before=datetime(2026, 1, 1, tzinfo=UTC)) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SET n = n + 1", {"n": 6}),
        ("SET n = n + 1; SET n = n * 2;", {"n": 12}),
        ("SET new = 'a' SET other = @p", {"new": "a", "other": 1.5}),
        ("SET new = 1, SET COLOR = 'blue'", {"new": 1, "Color": "blue"}),
        ("SET new = missing", {"new": None}),
        ("SET [a new one] = TRUE", {"a new one": True}),
        ("SET user.n = newid()", {"n": NEW_ID}),
    ],
)
def test_set_creates_or_changes_a_property(text: str, expected: dict[str, Any]):
    assert apply(text, p=1.5).user == {**MESSAGE.user, **expected}


def test_set_and_remove_change_system_properties_as_strings():
    changed = apply("SET sys.Label = n + 1; REMOVE sys.MessageId; SET sys.To = 'x' + sys.Label")

    assert changed.system == {**MESSAGE.system, "label": "6", "messageid": None, "to": "x6"}
    assert changed.user == MESSAGE.user


def test_remove_is_case_insensitive_and_ignores_missing_properties():
    assert apply("REMOVE color; REMOVE missing").user.keys() == MESSAGE.user.keys() - {"Color"}


TRUTH = {"T": "1=1", "F": "1=0", "U": "missing=1"}
TABLES = {
    "AND": {"TT": "T", "TF": "F", "TU": "U", "FT": "F", "FF": "F", "FU": "F", "UT": "U", "UF": "F", "UU": "U"},
    "OR": {"TT": "T", "TF": "T", "TU": "T", "FT": "T", "FF": "F", "FU": "U", "UT": "T", "UF": "U", "UU": "U"},
}


@pytest.mark.parametrize("word", TABLES)
def test_the_documented_truth_tables_hold(word: str):
    meaning = {"T": True, "F": False, "U": UNKNOWN}

    for sides, expected in TABLES[word].items():
        left, right = list(sides)
        assert evaluate(f"{TRUTH[left]} {word} {TRUTH[right]}") is meaning[expected]


@given(st.integers(-(2**62), 2**62), st.integers(-1000, 1000).filter(lambda each: each != 0))
def test_integer_division_truncates_towards_zero(dividend: int, divisor: int):
    message = MessageProperties(user={"a": dividend, "b": divisor})

    assert evaluate("a / b * b + a % b = a", message)
    assert evaluate(
        f"a / b = {abs(dividend) // abs(divisor) * (1 if (dividend < 0) == (divisor < 0) else -1)}", message
    )


names = st.text(min_size=1, max_size=10)
numbers = st.integers(-(2**31), 2**31) | st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(names, st.text(max_size=20))
def test_any_name_and_any_string_can_be_quoted(name: str, value: str):
    message = MessageProperties(user={name: value})
    bracketed = "[" + name.replace("]", "]]") + "]"
    quoted = '"' + name.replace('"', '""') + '"'
    literal = "'" + value.replace("'", "''") + "'"

    assert evaluate(f"{bracketed} = {literal} AND {quoted} IN ({literal})", message)


@given(numbers, numbers)
def test_a_comparison_and_its_negation_never_agree(one: float, other: float):
    message = MessageProperties(user={"a": one, "b": other})

    for sign, opposite in (("=", "<>"), ("<", ">="), (">", "<=")):
        assert evaluate(f"a {sign} b", message) is not evaluate(f"a {opposite} b", message)


@given(st.text(alphabet="ab%_\\", max_size=12), st.text(alphabet="ab%_\n", max_size=12))
def test_like_agrees_with_the_equivalent_regular_expression(pattern: str, text: str):
    expression = "".join({"%": ".*", "_": "."}.get(each, re.escape(each)) for each in pattern)

    assert like(text, pattern=pattern, escape="") is (re.fullmatch(expression, text, re.DOTALL) is not None)


@given(st.text(max_size=20), st.text(max_size=5))
def test_an_escaped_pattern_matches_only_its_text(text: str, more: str):
    pattern = "".join("~" + each for each in text)

    assert like(text, pattern=pattern, escape="~")
    assert like(text + more, pattern=pattern, escape="~") is (more == "")
    assert like(text + more, pattern=pattern + "%", escape="~")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *((text, ".") for text in ("n / 0 = 1", "n % 0 = 1", "Color * 2 = 1", "-Color = 1", "p(n) = 1")),
        ("9223372036854775807 + n > 0", "."),
        ("Color LIKE 'a' ESCAPE 'xy'", "LIKE"),
        ("Color LIKE 'a\\' ESCAPE '\\'", "LIKE"),
        ("Color LIKE 5", "LIKE"),
    ],
)
def test_an_undefined_operation_is_an_evaluation_error(text: str, reason: str):
    with pytest.raises(SqlEvaluationError, match=reason):
        evaluate(text)


@pytest.mark.parametrize("doubled", ["text", "sys.Label"])
def test_an_action_makes_no_text_that_is_longer_than_a_property_may_be(doubled: str):
    action = f"SET {doubled} = '0123456789abcdef'; " + "; ".join([f"SET {doubled} = {doubled} + {doubled}"] * 11)
    value = apply(action)

    assert len(str(value.user_value("text") or value.system_value("Label"))) == 2**15
    with pytest.raises(SqlEvaluationError, match="a text has 65536 characters; allowed: 32768"):
        apply(f"{action}; SET {doubled} = {doubled} + {doubled}")


def test_the_slowest_pattern_is_matched_in_time():
    started = time.process_time()

    for pattern in ("%" + "a" * 1000 + "b%", "%a" * 9 + "%b"):
        assert not like("a" * 2**15, pattern=pattern, escape="")
    # A rule of each subscription holds the namespace for as long.
    assert time.process_time() - started < 1.5
