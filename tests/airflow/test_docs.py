"""The provider's pages tell the truth: their snippets are the example DAGs', and every operator has its section."""

from __future__ import annotations

import importlib
import re
import textwrap

import pytest

from servicebus_pair.get_provider_info import get_provider_info
from servicebus_pair.operators import messages
from tests.airflow.conftest import PROJECT

DOCS = PROJECT / "provider" / "docs"
QUOTED = re.compile(r"<!-- from (\S+): (\w+) -->\n```python\n(.*?)```", flags=re.DOTALL)
SNIPPETS = [(page.name, *found) for page in sorted(DOCS.glob("*.md")) for found in QUOTED.findall(page.read_text())]
OPERATORS_PAGE = (DOCS / "operators.md").read_text()


@pytest.mark.parametrize(("page", "source", "name", "text"), SNIPPETS, ids=[f"{row[0]}-{row[2]}" for row in SNIPPETS])
def test_a_quoted_snippet_is_the_example_dags(page: str, source: str, name: str, text: str):
    marked = re.search(rf" *# \[START {name}\]\n(.*?) *# \[END {name}\]", (PROJECT / source).read_text(), re.DOTALL)

    assert marked is not None, f"{page}: {source} has no snippet {name}"
    assert text == textwrap.dedent(marked[1]).rstrip() + "\n"


def test_the_page_of_the_operators_shows_no_code_that_is_not_run():
    assert OPERATORS_PAGE.count("```python") == len(QUOTED.findall(OPERATORS_PAGE)) > 0


def test_every_operator_is_on_the_page():
    modules = [name for each in get_provider_info()["operators"] for name in each["python-modules"]]
    operators = [
        name for each in modules for name in importlib.import_module(each).__all__ if name.endswith("Operator")
    ]

    assert len(operators) >= 9
    assert [name for name in operators if f"`{name}`" not in OPERATORS_PAGE] == []


def test_every_field_of_a_message_is_on_the_page():
    assert [name for name in messages.MessageFields.__annotations__ if f"`{name}`" not in OPERATORS_PAGE] == []
