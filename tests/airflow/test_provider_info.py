"""What Airflow reads about the provider agrees with Airflow's own schema and with the core."""

from __future__ import annotations

import importlib
import json
from dataclasses import fields
from datetime import timedelta
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest

from servicebus_pair.core.configuration import read_pair
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.options import PairOptions
from servicebus_pair.get_provider_info import get_provider_info

CONNECTION = get_provider_info()["connection-types"][0]
FIELDS: dict[str, Any] = CONNECTION["conn-fields"]
NUMBERS = {name: field["schema"] for name, field in FIELDS.items() if "minimum" in field["schema"]}
ENDPOINTS = {
    "primary_connection_string": "Endpoint=sb://contoso.example/;SharedAccessKeyName=n;SharedAccessKey=k",
    "secondary_connection_string": "Endpoint=sb://contoso-dr.example/;SharedAccessKeyName=n;SharedAccessKey=k",
}


def test_the_provider_info_has_the_shape_that_airflow_asks_for():
    schema = Path(airflow.__file__).parent / "provider_info.schema.json"

    jsonschema.validate(get_provider_info(), json.loads(schema.read_text()))


def test_every_module_that_is_named_exists():
    info = get_provider_info()
    named = [name for kind in ("operators", "sensors", "hooks", "triggers") for name in info[kind][0]["python-modules"]]

    assert all(importlib.import_module(name).__all__ for name in named)


def test_airflow_knows_the_connection_type_its_hook_and_its_form():
    from airflow.providers_manager import ProvidersManager

    from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

    manager = ProvidersManager()
    hook = manager.hooks["servicebus_pair"]
    secrets = [name for name, field in manager.connection_form_widgets.items() if field.is_sensitive]

    assert hook is not None
    assert hook.hook_class_name == f"{ServiceBusPairHook.__module__}.{ServiceBusPairHook.__name__}"
    assert {name for name in secrets if "servicebus_pair" in name} == {
        "extra__servicebus_pair__primary_connection_string",
        "extra__servicebus_pair__secondary_connection_string",
    }


@pytest.mark.parametrize("name", sorted(NUMBERS))
def test_a_default_and_a_range_of_the_form_are_those_of_the_core(name: str):
    """SPEC section 2."""
    default = getattr(PairOptions(), name)
    seconds = default.total_seconds() if isinstance(default, timedelta) else default

    assert NUMBERS[name]["default"] == seconds
    for bound in ("minimum", "maximum"):
        if bound in NUMBERS[name]:
            assert read_pair({**ENDPOINTS, name: NUMBERS[name][bound]})
    for beyond in (NUMBERS[name]["minimum"] - 1, NUMBERS[name].get("maximum", float("nan")) + 1):
        if beyond == beyond:  # noqa: PLR0124  a form without a maximum
            with pytest.raises(ConfigurationError):
                read_pair({**ENDPOINTS, name: beyond})


def test_every_field_of_the_form_is_a_setting_of_the_core():
    settings = {
        f"{side}_{name}"
        for side in ("primary", "secondary")
        for name in ("connection_string", "namespace", "administration")
    }

    assert set(FIELDS) <= settings | {option.name for option in fields(PairOptions)}
