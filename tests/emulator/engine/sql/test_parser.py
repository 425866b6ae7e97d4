"""Syntax of filters and actions."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_emulator.engine.sql import nodes
from servicebus_emulator.engine.sql.errors import SqlSyntaxError
from servicebus_emulator.engine.sql.parser import parse_action, parse_filter


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
        ("in = 1", r"allowed: the name of a property; a reserved word must be in \[brackets\]"),
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
def test_an_invalid_filter_is_reported_with_its_position(text: str, reason: str):
    with pytest.raises(SqlSyntaxError, match=reason):
        parse_filter(text, parameters={"@p": 1})


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
def test_an_invalid_action_is_reported_with_its_position(text: str, reason: str):
    with pytest.raises(SqlSyntaxError, match=reason):
        parse_action(text, parameters={})


@given(st.text(alphabet="ansyuser.='1()<>NOTLIKEIN[]\"@p,;+-*%/ ", max_size=40))
def test_arbitrary_text_is_parsed_or_refused_with_a_syntax_error(text: str):
    for parse in (parse_filter, parse_action):
        with suppress(SqlSyntaxError):
            assert parse(text, parameters={"@p": 1}) is not None


def test_long_chains_are_flat():
    chain = parse_filter(" OR ".join(["n=1"] * 120), parameters={})

    assert chain == nodes.Or((nodes.Comparison("=", nodes.Property(nodes.Scope.USER, "n"), nodes.Constant(1)),) * 120)
    parse_filter("+".join("1" * 500) + "=500", parameters={})
