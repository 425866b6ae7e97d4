"""Checks of option values, which may be text: what they accept, and errors with name, value and what is allowed."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from servicebus_pair.core.model.checks import (
    boolean,
    choice,
    duration,
    entity_path,
    host_address,
    integer,
    is_folder,
    message_rate,
    no_secret,
    non_empty_text,
    resource_name,
    service_url,
    storage_location,
)
from servicebus_pair.core.model.errors import ConfigurationError

SECOND = timedelta(seconds=1)
Check = Callable[[str, Any], Any]


NO_DURATIONS: list[Any] = [0.9, 61, True, "nan", "inf", 1e300, [], "soon"]


@pytest.mark.parametrize(
    ("check", "value", "expected"),
    [
        (boolean, False, False),
        (boolean, " True ", True),
        (choice("a", "b"), "b", "b"),
        (integer(1), 10**6, 10**6),
        (integer(1, 3), "1", 1),
        (integer(1, 3), 3.0, 3),
        (message_rate, "0.5", 0.5),
        (duration(SECOND, 2 * SECOND), SECOND, SECOND),
        (duration(SECOND, 2 * SECOND), "2", 2 * SECOND),
        (duration(SECOND), timedelta.max, timedelta.max),
        (non_empty_text, " a", " a"),
        (host_address, "gateway.example:443", "gateway.example:443"),
        (host_address, "[::1]:5672", "[::1]:5672"),
        (service_url("sb://"), "sb://gateway.example", "sb://gateway.example"),
        (service_url("https://", "http://"), "http://127.0.0.1:80/", "http://127.0.0.1:80/"),
        (resource_name, "contoso-dr_(1).x", "contoso-dr_(1).x"),
        (resource_name, "x" * 128, "x" * 128),
        *((storage_location, value, value) for value in ("/data/spool", "file:///data", "s3://bucket/spool")),
    ],
)
def test_check_returns_value_in_its_type(check: Check, value: Any, expected: Any) -> None:
    result = check("field", value)
    assert (result, type(result)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("check", "value", "allowed"),
    [
        (boolean, 1, "allowed are true and false"),
        (boolean, "yes", "allowed are true and false"),
        (choice("a", "b"), "c", "allowed are a, b"),
        (choice("a", "b"), [], "allowed are a, b"),
        (integer(1), 0, "it must be a whole number from 1"),
        (integer(1, 3), 4, "it must be a whole number from 1 to 3"),
        *((integer(0, 3), value, "it must be a whole number from 0 to 3") for value in (True, None, 1.5, "many")),
        *(
            (message_rate, value, "it must be a number of messages a second above 0")
            for value in (0, True, "inf", "nan", None, 10**400)
        ),
        *(
            (duration(SECOND, 60 * SECOND), value, "it must be a timedelta or a number of seconds, from 1 to 60 s")
            for value in NO_DURATIONS
        ),
        (duration(SECOND), 0, "it must be a timedelta or a number of seconds, from 1 s"),
        *((non_empty_text, value, "it must be a text that is not empty") for value in ("", " ", 5, None)),
    ],
)
def test_check_rejects_value_and_names_what_is_allowed(check: Check, value: Any, allowed: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check("field", value)
    # What is longer than any value that is allowed may be a secret.
    shown = repr(value) if len(repr(value)) <= 40 else "a value that is not shown"
    assert str(caught.value) == f"field is {shown}: {allowed}"


@pytest.mark.parametrize(
    ("check", "value", "allowed"),
    [
        (host_address, "gateway.example/path", "a host name, optionally with a port, such as gateway.example:443"),
        (host_address, 5, "a host name, optionally with a port, such as gateway.example:443"),
        (service_url("https://", "http://"), "sb://x", "https://host:port or http://host:port"),
        (service_url("sb://"), "sb://user@x", "sb://host:port"),
        (service_url("sb://"), "sb://x/path", "sb://host:port"),
        (resource_name, "a b", "a name or id of letters, digits, '.', '_', '-' and parentheses"),
        (resource_name, "x" * 129, "a name or id of letters, digits, '.', '_', '-' and parentheses"),
    ],
)
def test_a_name_or_address_that_may_be_a_secret_is_refused_without_being_quoted(
    check: Check, value: Any, allowed: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check("field", value)
    assert str(caught.value) == f"field is not allowed: it must be {allowed}"


@pytest.mark.parametrize("check", [host_address, service_url("sb://"), resource_name])
def test_a_secret_is_sent_where_it_belongs_without_being_quoted(check: Check) -> None:
    secret = "SharedAccessKeyName=a;SharedAccessKey=abcdefgh"
    with pytest.raises(ConfigurationError, match="it belongs in a field for secrets") as caught:
        check("field", secret)
    assert "abcdefgh" not in str(caught.value)
    with pytest.raises(ConfigurationError, match="it belongs elsewhere"):
        no_secret("field", secret, belongs="elsewhere")
    no_secret("field", "plain")


@pytest.mark.parametrize(
    ("location", "folder"),
    [(None, False), ("/data/spool", True), ("file:///data", True), ("s3://bucket/spool", False), ("a://b", False)],
)
def test_a_folder_is_a_path_or_a_url_of_one(location: str | None, folder: bool) -> None:
    assert is_folder(location) is folder


@pytest.mark.parametrize(
    ("location", "reason"),
    [
        ("spool", "'spool': it must be an absolute path or a URL"),
        ("s3:bucket", "'s3:bucket': it must be an absolute path or a URL"),
        ("a b?c", "a text that is not shown: it must be an absolute path or a URL"),
        ("s3://user:abcdefgh@bucket/spool", "a URL with credentials or a query"),
        ("s3://bucket/spool?key=abcdefgh", "a URL with credentials or a query"),
        ("/data/SharedAccessKey=abcdefgh", "a URL with credentials or a query"),
        ("simplecache::s3://bucket/spool", "a URL of 'simplecache', which is no object store"),
        ("zip://archive", "a URL of 'zip', which is no object store"),
        ("gist://archive", "a URL of 'gist', which is no object store"),
    ],
)
def test_a_place_that_is_no_folder_and_no_store_is_refused_without_its_secrets(location: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=re.escape(reason)) as caught:
        storage_location("spool", location)
    assert "abcdefgh" not in str(caught.value)


@pytest.mark.parametrize("path", ["__type", "flights/__classname__"])
def test_a_part_of_a_path_does_not_begin_with_underscores(path: str) -> None:
    with pytest.raises(ConfigurationError, match="each part of a path begins with a letter or digit"):
        entity_path("entity", path)
    assert entity_path("entity", "a__b/c__") == "a__b/c__"


def test_control_characters_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="it must have no line ends and other control characters"):
        non_empty_text("field", "a\nb")
