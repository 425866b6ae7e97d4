"""The language of subscription rules: Microsoft's "Subscription Rule SQL Filter Syntax" and "... Action Syntax"."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator.engine.sql import nodes
from servicebus_emulator.engine.sql.errors import SqlEvaluationError, SqlSyntaxError
from servicebus_emulator.engine.sql.evaluation import Evaluation
from servicebus_emulator.engine.sql.parser import parse_action, parse_filter
from servicebus_emulator.engine.sql.pattern import like
from servicebus_emulator.engine.sql.properties import MessageProperties
from servicebus_emulator.engine.sql.values import SqlValue

NEW_ID = UUID(int=7)
EVALUATION = Evaluation(new_uuid=lambda: NEW_ID)
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


def holds(text: str, message: MessageProperties = MESSAGE, **parameters: SqlValue) -> bool | None:
    named = {f"@{name}": value for name, value in parameters.items()}
    return EVALUATION.holds(parse_filter(text, parameters=named), message)


def after(text: str, message: MessageProperties = MESSAGE, **parameters: SqlValue) -> MessageProperties:
    named = {f"@{name}": value for name, value in parameters.items()}
    return EVALUATION.apply(parse_action(text, parameters=named), message)


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
def test_a_condition_is_true_false_or_unknown_as_documented(text: str, expected: bool | None):
    assert holds(text, noon=NOON, before=datetime(2026, 1, 1, tzinfo=UTC)) is expected


@pytest.mark.parametrize(
    "text", ["n / 0 = 1", "n % 0 = 1", "Color * 2 = 1", "-Color = 1", "9223372036854775807 + n > 0", "p(n) = 1"]
)
def test_what_has_no_value_for_a_message_is_an_error_of_evaluation(text: str):
    with pytest.raises(SqlEvaluationError):
        holds(text)


@pytest.mark.parametrize("text", ["Color LIKE 'a' ESCAPE 'xy'", "Color LIKE 'a\\' ESCAPE '\\'", "Color LIKE 5"])
def test_a_pattern_that_is_none_is_an_error_of_evaluation(text: str):
    with pytest.raises(SqlEvaluationError, match="LIKE"):
        holds(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "found the end at character 1; allowed: a constant, a property"),
        ("n", "found the end at character 2; allowed: a comparison"),
        ("n = ", "found the end at character 5; allowed: a constant"),
        ("n = 1 2", "found '2' at character 7; allowed: AND, OR or the end"),
        ("n = 1 AND", "found the end at character 10"),
        ("n = 'a", "found \"'\" at character 5; allowed: a string that ends with '"),
        ("[n = 1", "allowed: a name of at least one character that ends with ]"),
        ("n # 1", "found '#' at character 3"),
        ("(n = 1", r"found the end at character 7; allowed: \)"),
        ("n IN ()", r"found '\)' at character 7"),
        ("n IN 1", r"allowed: \("),
        ("n NOT = 1", "allowed: IN or LIKE"),
        ("n IS 1", "allowed: NULL or NOT NULL"),
        ("1 IS NULL", "allowed: IS after a property only"),
        ("(n = 1) = 2", "found a condition at character 1; allowed: a value"),
        ("n AND n = 1", "found 'AND' at character 3; allowed: a comparison"),
        ("in = 1", r"allowed: the name of a property; a reserved word stands in \[brackets\]"),
        ("other.n = 1", r"allowed: the scopes sys and user, or \[a.name\] in brackets"),
        ("sys.Colour = 1", "found 'Colour' at character 5; allowed: the system properties ContentType"),
        ("upper(n) = 1", r"allowed: the functions newid\(\), property\(name\) and p\(name\)"),
        ("n = @q", "found '@q' at character 5; allowed: the parameters of the rule: @p"),
        ("n = 9223372036854775808", "allowed: a whole number of 64 bits"),
        ("n = " + "(" * 40 + "1" + ")" * 40, "allowed: at most 32 levels"),
        ("NOT " * 40 + "n = 1", "allowed: at most 32 levels"),
        ("n = 1" + " " * 1024, "an expression of 1029 characters at character 1025; allowed: at most 1024"),
    ],
)
def test_a_filter_that_does_not_follow_the_language_is_refused_with_the_place(text: str, reason: str):
    with pytest.raises(SqlSyntaxError, match=reason):
        holds(text, p=1)


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
    assert after(text, p=1.5).user == {**MESSAGE.user, **expected}


def test_set_and_remove_change_system_properties_as_texts():
    changed = after("SET sys.Label = n + 1; REMOVE sys.MessageId; SET sys.To = 'x' + sys.Label")

    assert changed.system == {**MESSAGE.system, "label": "6", "messageid": None, "to": "x6"}
    assert changed.user == MESSAGE.user


def test_remove_takes_a_property_away_whatever_its_case_and_passes_over_what_is_missing():
    assert after("REMOVE color; REMOVE missing").user.keys() == MESSAGE.user.keys() - {"Color"}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "allowed: SET or REMOVE"),
        ("DROP n", "found 'DROP' at character 1; allowed: SET or REMOVE"),
        ("SET n 1", "allowed: = after the property of SET"),
        ("SET n = n = 1", "found '=' at character 11; allowed: SET or REMOVE"),
        ("SET sys.TimeToLive = 1", "found sys.TimeToLive at character 5; allowed: an action may change sys"),
        ("SET n=1;" * 33, "an action has at most 32 statements"),
    ],
)
def test_an_action_that_does_not_follow_the_language_is_refused_with_the_place(text: str, reason: str):
    with pytest.raises(SqlSyntaxError, match=reason):
        after(text)


@given(st.text(alphabet="ab%_\\", max_size=12), st.text(alphabet="ab%_\n", max_size=12))
def test_like_agrees_with_the_regular_expression_of_its_pattern(pattern: str, text: str):
    expression = "".join({"%": ".*", "_": "."}.get(each, re.escape(each)) for each in pattern)

    assert like(text, pattern=pattern, escape="") is (re.fullmatch(expression, text, re.DOTALL) is not None)


@given(st.text(max_size=20), st.text(max_size=5))
def test_an_escaped_pattern_matches_exactly_its_text(text: str, more: str):
    pattern = "".join("~" + each for each in text)

    assert like(text, pattern=pattern, escape="~")
    assert like(text + more, pattern=pattern, escape="~") is (more == "")
    assert like(text + more, pattern=pattern + "%", escape="~")


TABLES = {
    "AND": {"TT": "T", "TF": "F", "TU": "U", "FT": "F", "FF": "F", "FU": "F", "UT": "U", "UF": "F", "UU": "U"},
    "OR": {"TT": "T", "TF": "T", "TU": "T", "FT": "T", "FF": "F", "FU": "U", "UT": "T", "UF": "U", "UU": "U"},
}


@pytest.mark.parametrize("word", TABLES)
def test_the_documented_truth_tables_hold(word: str):
    meaning = {"T": True, "F": False, "U": UNKNOWN}

    for (left, right), expected in TABLES[word].items():
        assert holds(f"{TRUTH[left]} {word} {TRUTH[right]}") is meaning[expected]


@given(st.integers(-(2**62), 2**62), st.integers(-1000, 1000).filter(lambda each: each != 0))
def test_integers_are_divided_towards_zero_and_the_remainder_fits(dividend: int, divisor: int):
    message = MessageProperties(user={"a": dividend, "b": divisor})

    assert holds("a / b * b + a % b = a", message)
    assert holds(f"a / b = {abs(dividend) // abs(divisor) * (1 if (dividend < 0) == (divisor < 0) else -1)}", message)


TRUTH = {"T": "1=1", "F": "1=0", "U": "missing=1"}
conditions = st.recursive(
    st.sampled_from(list(TRUTH.values())),
    lambda inner: st.one_of(
        inner.map(lambda each: f"NOT ({each})"),
        st.tuples(inner, st.sampled_from(["AND", "OR"]), inner).map(lambda each: f"({each[0]}) {each[1]} ({each[2]})"),
    ),
    max_leaves=8,
)


@given(conditions, conditions)
def test_de_morgan_holds_in_three_values(left: str, right: str):
    assert holds(f"NOT (({left}) AND ({right}))") is holds(f"NOT ({left}) OR NOT ({right})")
    assert holds(f"({left}) OR ({right})") is holds(f"({right}) OR ({left})")


names = st.text(min_size=1, max_size=10)
numbers = st.integers(-(2**31), 2**31) | st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(names, st.text(max_size=20))
def test_any_name_and_any_string_can_be_written(name: str, value: str):
    message = MessageProperties(user={name: value})
    bracketed = "[" + name.replace("]", "]]") + "]"
    quoted = '"' + name.replace('"', '""') + '"'
    literal = "'" + value.replace("'", "''") + "'"

    assert holds(f"{bracketed} = {literal} AND {quoted} IN ({literal})", message)


@given(numbers, numbers)
def test_a_comparison_and_its_opposite_never_agree(one: float, other: float):
    message = MessageProperties(user={"a": one, "b": other})

    for sign, opposite in (("=", "<>"), ("<", ">="), (">", "<=")):
        assert holds(f"a {sign} b", message) is not holds(f"a {opposite} b", message)


@given(st.text(alphabet="ansyuser.='1()<>NOTLIKEIN[]\"@p,;+-*%/ ", max_size=40))
def test_rubbish_is_refused_or_read_but_never_breaks(text: str):
    for parse in (parse_filter, parse_action):
        with suppress(SqlSyntaxError):
            assert parse(text, parameters={"@p": 1}) is not None


def test_long_chains_are_flat():
    chain = parse_filter(" OR ".join(["n=1"] * 120), parameters={})

    assert chain == nodes.Or((nodes.Comparison("=", nodes.Property(nodes.Scope.USER, "n"), nodes.Constant(1)),) * 120)
    assert holds("+".join("1" * 500) + "=500")
