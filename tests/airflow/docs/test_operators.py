"""The documentation quotes the example DAGs and covers every operator and parameter."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from servicebus_pair.airflow_runtime import message_spec as messages
from servicebus_pair.get_provider_info import get_provider_info
from tests.airflow.conftest import PROJECT

DOCS = PROJECT / "provider" / "docs"
QUOTED = re.compile(r"<!-- from (\S+): (\w+) -->\n```python\n(.*?)```", flags=re.DOTALL)
SNIPPETS = [(page.name, *found) for page in sorted(DOCS.glob("*.md")) for found in QUOTED.findall(page.read_text())]
OPERATORS_PAGE = (DOCS / "operators.md").read_text()


@pytest.mark.parametrize(("page", "source", "name", "text"), SNIPPETS, ids=[f"{row[0]}-{row[2]}" for row in SNIPPETS])
def test_quoted_snippets_match_the_example_dags(page: str, source: str, name: str, text: str):
    marked = re.search(rf" *# \[START {name}\]\n(.*?) *# \[END {name}\]", (PROJECT / source).read_text(), re.DOTALL)

    assert marked is not None, f"{page}: {source} has no snippet {name}"
    assert text == textwrap.dedent(marked[1]).rstrip() + "\n"


def test_the_operators_page_has_no_unquoted_code():
    assert OPERATORS_PAGE.count("```python") == len(QUOTED.findall(OPERATORS_PAGE)) > 0


def operators() -> list[type]:
    """Every operator in the provider info."""
    modules = [
        importlib.import_module(name) for each in get_provider_info()["operators"] for name in each["python-modules"]
    ]
    return [getattr(module, name) for module in modules for name in module.__all__ if name.endswith("Operator")]


def own_parameters(operator: type) -> Iterator[inspect.Parameter]:
    """The parameters of an operator and of our base classes."""
    for base in operator.__mro__:
        if base.__module__.startswith("servicebus_pair") and "__init__" in vars(base):
            yield from inspect.signature(vars(base)["__init__"]).parameters.values()


def test_every_operator_is_on_the_page():
    names = [operator.__name__ for operator in operators()]

    assert len(names) >= 9
    assert [name for name in names if f"`{name}`" not in OPERATORS_PAGE] == []


@pytest.mark.parametrize("operator", operators(), ids=lambda operator: operator.__name__)
def test_every_operator_parameter_is_in_a_table_and_marked_if_templated(operator: Any):
    own = [
        parameter
        for parameter in own_parameters(operator)
        if parameter.name not in {"self", "kwargs", "servicebus_pair_conn_id"}
    ]
    rows = re.findall(r"^\| (`.*?) \|", OPERATORS_PAGE, flags=re.MULTILINE)
    reported = {name: bool(mark) for row in rows for name, mark in re.findall(r"`(\w+)`( T)?", row)}
    reported |= dict.fromkeys(re.findall(r"`(\w+)` T is", OPERATORS_PAGE), True)

    assert own
    assert all(parameter.kind is parameter.KEYWORD_ONLY for parameter in own)
    templated = {parameter.name: parameter.name in operator.template_fields for parameter in own}
    assert {name: reported.get(name) for name in templated} == templated


def sensors() -> list[type]:
    """Every sensor in the provider info."""
    names = [name for each in get_provider_info()["sensors"] for name in each["python-modules"]]
    modules = [importlib.import_module(name) for name in names]
    return [getattr(module, name) for module in modules for name in module.__all__ if name.endswith("Sensor")]


@pytest.mark.parametrize("sensor", sensors(), ids=lambda sensor: sensor.__name__)
def test_every_sensor_parameter_is_in_a_table_and_marked_if_templated(sensor: Any):
    own = {each.name for each in own_parameters(sensor)} - {"self", "kwargs", "servicebus_pair_conn_id"}
    page = (DOCS / "sensors.md").read_text()
    reported = {
        name: bool(mark)
        for row in re.findall(r"^\| (`.*?) \|", page, flags=re.MULTILINE)
        for name, mark in re.findall(r"`(\w+)`( T)?", row)
    }

    assert own
    assert {name: reported.get(name) for name in own} == {name: name in sensor.template_fields for name in own}


def test_every_marked_snippet_is_quoted_on_a_page():
    pages = [*DOCS.glob("*.md"), PROJECT / "README.md"]
    shown = {(source, name) for page in pages for source, name, _ in QUOTED.findall(page.read_text())}
    folders = ("dags", "provider/servicebus_pair/dags", "provider/servicebus_pair/example_dags")
    marked = {
        (f"{folder}/{file.name}", name)
        for folder in folders
        for file in (PROJECT / folder).glob("*.py")
        for name in re.findall(r"# \[START (\w+)\]", file.read_text())
    }

    assert marked - shown == set()


def test_every_message_field_is_on_the_page():
    assert [name for name in messages.MessageFields.__annotations__ if f"`{name}`" not in OPERATORS_PAGE] == []


def test_every_class_of_the_official_provider_for_service_bus_is_in_the_table():
    names = ("operators.asb", "triggers.message_bus")
    modules = [importlib.import_module(f"airflow.providers.microsoft.azure.{name}") for name in names]
    theirs = {
        value.__name__
        for module in modules
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__ and not value.__name__.startswith("Base")
    }

    page = (DOCS / "receiving.md").read_text()
    assert len(theirs) >= 12
    assert [name for name in sorted(theirs) if f"`{name}`" not in page] == []
