"""The page of compatibility says what the package demands and what it is tested with (issue 5)."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.airflow.conftest import PROJECT

PAGE = (PROJECT / "provider" / "docs" / "compatibility.md").read_text()
ROWS = re.findall(r"^\| ([a-z, -]+) \| (?:exactly )?([\d.]+) \| ([\d.]+) \|", PAGE, flags=re.MULTILINE)
PACKAGES = [(name, needed, tested) for names, needed, tested in ROWS for name in names.split(", ")]
PINNED = dict(re.findall(r"^([\w-]+)==([\w.]+)", (PROJECT / "constraints.txt").read_text(), flags=re.MULTILINE))
PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
DEMANDED = [
    *PYPROJECT["dependencies"],
    *(each for extra in PYPROJECT["optional-dependencies"].values() for each in extra),
]


@pytest.mark.parametrize(("name", "needed", "tested"), PACKAGES, ids=[name for name, _, _ in PACKAGES])
def test_the_table_is_that_of_the_package(name: str, needed: str, tested: str):
    assert {f"{name}>={needed}", f"{name}=={needed}"} & set(DEMANDED)
    assert PINNED[name] == tested


def test_the_table_has_what_the_products_rest_on():
    assert {name for name, _, _ in PACKAGES} >= {"apache-airflow", "azure-servicebus", "pyspark"}


def test_every_python_of_the_page_is_one_of_the_packages():
    said = re.search(r"^Python ([\d., and]+)\.", PAGE, flags=re.MULTILINE)
    classified = [each.rpartition(" :: ")[2] for each in PYPROJECT["classifiers"] if "Python :: 3." in each]

    assert said is not None
    assert re.findall(r"3\.\d+", said[1]) == classified
