"""provider.yaml, the provider info and the package agree."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
import yaml
from airflow.sdk import BaseHook, BaseNotifier, BaseOperator, BaseOperatorLink
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.triggers.base import BaseTrigger

import servicebus_pair
from servicebus_pair.get_provider_info import get_provider_info
from tests.airflow.conftest import PROJECT
from tests.airflow.support.versions import needs

INFO = get_provider_info()
REGISTRY: dict[str, Any] = yaml.safe_load((PROJECT / "provider" / "servicebus_pair" / "provider.yaml").read_text())
KINDS = {
    BaseSensorOperator: "sensors",
    BaseOperator: "operators",
    BaseHook: "hooks",
    BaseTrigger: "triggers",
    BaseOperatorLink: "extra-links",
    BaseNotifier: "notifications",
}


def public_classes() -> Iterator[type]:
    """The classes that DAG authors may use: each of ours that is not the base of another."""
    names = [each.name for each in pkgutil.walk_packages(servicebus_pair.__path__, "servicebus_pair.")]
    ours = {
        value
        for name in names
        if not name.startswith(("servicebus_pair.spark", "servicebus_pair.core"))
        and name != "servicebus_pair.airflow_runtime.observers.openlineage"
        for value in vars(importlib.import_module(name)).values()
        if inspect.isclass(value) and value.__module__ == name and not value.__name__.startswith("_")
    }
    bases = {base for each in ours for base in each.__mro__[1:]}
    yield from sorted(ours - bases, key=lambda each: each.__qualname__)


def listed(kind: str) -> set[str]:
    """Return the modules or class paths that the provider info lists for a kind."""
    return {
        name for each in INFO.get(kind, []) for name in ([each] if isinstance(each, str) else each["python-modules"])
    }


# Its schema allows what ours says since then.
@needs("connection_forms")
def test_provider_yaml_matches_airflows_schema():
    schema = Path(airflow.__file__).parent / "provider.yaml.schema.json"

    jsonschema.validate(REGISTRY, json.loads(schema.read_text()))


def test_provider_yaml_equals_the_provider_info():
    reported = {**INFO, "connection-types": [without_form(each) for each in INFO["connection-types"]]}
    own = {"state", "lifecycle", "source-date-epoch", "versions", "plugins"}

    assert {name: value for name, value in REGISTRY.items() if name not in own} == reported


def without_form(connection_type: dict[str, Any]) -> dict[str, Any]:
    forms = {"conn-fields", "ui-field-behaviour"}
    return {name: value for name, value in connection_type.items() if name not in forms}


def test_provider_yaml_has_the_version_and_plugin_of_the_package():
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    [(name, plugin)] = project["entry-points"]["airflow.plugins"].items()

    assert REGISTRY["versions"][0] == project["version"]
    assert REGISTRY["package-name"] == project["name"]
    assert REGISTRY["plugins"] == [{"name": name, "plugin-class": plugin.replace(":", ".")}]


def test_everything_listed_can_be_imported():
    modules = [name for kind in ("operators", "sensors", "hooks", "triggers") for name in listed(kind)]
    classes = [
        *listed("extra-links"),
        *listed("notifications"),
        *(each["class-name"] for each in INFO["task-decorators"]),
    ]
    classes += [each["hook-class-name"] for each in INFO["connection-types"]]
    classes += [each["plugin-class"] for each in REGISTRY["plugins"]]

    assert all(importlib.import_module(name).__all__ for name in modules)
    assert all(
        callable(getattr(importlib.import_module(path.rpartition(".")[0]), path.rpartition(".")[2])) for path in classes
    )


def test_every_public_class_is_listed_and_each_kind_has_some():
    kinds = {
        each: next(name for base, name in KINDS.items() if issubclass(each, base))
        for each in public_classes()
        if issubclass(each, tuple(KINDS))
    }

    unlisted = [
        each
        for each, kind in kinds.items()
        if not {each.__module__, f"{each.__module__}.{each.__qualname__}"} & listed(kind)
    ]
    assert unlisted == []
    assert set(kinds.values()) == set(KINDS.values())


def test_guides_and_logo_exist():
    [integration] = INFO["integrations"]
    paths = [*integration["how-to-guide"], f"/docs{integration['logo']}"]

    assert [path for path in paths if not (PROJECT / "provider" / path.removeprefix("/")).is_file()] == []


def test_every_setting_that_is_read_is_in_the_config_section():
    files = (PROJECT / "provider" / "servicebus_pair").rglob("*.py")
    read = {
        name
        for file in files
        for name in re.findall(r"""conf\.get\w*\("servicebus_pair",\s*"(\w+)\"""", file.read_text())
    }

    assert read == set(INFO["config"]["servicebus_pair"]["options"]) != set()


@needs("example_bundles")
@pytest.mark.usefixtures("airflow_db")
def test_airflow_finds_the_example_dags_of_the_distribution():
    """With [core] load_examples, Airflow adds the example_dags folder of each provider as a bundle."""
    from airflow.dag_processing.bundles.manager import _add_provider_example_dags_to_bundle

    from tests.airflow.support.dag_bag import DagBag

    bundles: list[Any] = []
    _add_provider_example_dags_to_bundle(bundles)
    [ours] = [each for each in bundles if each.name == f"{INFO['package-name']}-example-dags"]
    bag = DagBag(ours.kwargs["path"])

    assert bag.import_errors == {}
    assert {"first_send", "servicebus_pair_recovery", "servicebus_pair_sends", "orders_pair_recovery"} <= set(bag.dags)
