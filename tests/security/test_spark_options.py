"""A secret in any option of the data source, or as its name, comes back in no error and no ``repr`` of the options."""

from __future__ import annotations

from typing import Any

import pytest

from servicebus_pair.spark.datasource.option_table import OPTIONS
from servicebus_pair.spark.datasource.options import ReadOptions, WriteOptions
from tests.security.canaries import CANARIES, disclosed, outcome

GIVEN = {"credential": "env:PAIR", "entity": "flights"}
PARSERS: dict[str, Any] = {
    "write": WriteOptions.parse,
    "read": lambda options: ReadOptions.parse(options, streaming=False),
    "stream": lambda options: ReadOptions.parse(options, streaming=True),
}
TEXTS = {name: canary for name, canary in CANARIES.items() if isinstance(canary, str)}


@pytest.mark.parametrize("canary", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("parse", PARSERS.values(), ids=PARSERS)
def test_no_option_discloses_a_secret(parse: Any, canary: str):
    leaks = [
        name
        for name in (*OPTIONS, "unknown", canary, canary.lower())  # Spark folds names
        if disclosed(outcome(lambda name=name: parse({**GIVEN, name: canary})))  # type: ignore[misc]
    ]

    assert leaks == []


@pytest.mark.parametrize("canary", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("scheme", ["env", "file", "airflow"])
def test_a_secret_in_place_of_a_name_or_a_path_is_no_reference(scheme: str, canary: str):
    for parse in PARSERS.values():
        text = outcome(lambda parse=parse: parse({**GIVEN, "credential": f"{scheme}:{canary}"}))  # type: ignore[misc]
        assert "ConfigurationError" in text
        assert not disclosed(text)


@pytest.mark.parametrize("name", [name for name in OPTIONS if name != "credential"])
def test_a_connection_string_as_an_option_is_refused_with_where_it_belongs(name: str):
    for parse in PARSERS.values():
        text = outcome(lambda parse=parse: parse({**GIVEN, name: CANARIES["connection string"]}))  # type: ignore[misc]
        assert f"option {name} holds a connection string" in text or f"option {name} is not for" in text


@pytest.mark.parametrize("option", ["health", "startingOffsets", "endingOffsets"])
def test_an_option_that_is_nested_too_deeply_is_refused_as_any_other(option: str):
    for parse in PARSERS.values():
        text = outcome(lambda parse=parse: parse({**GIVEN, option: "[" * 100_000}))  # type: ignore[misc]
        assert text.startswith("ConfigurationError")
