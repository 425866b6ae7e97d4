"""What Airflow reads about the provider agrees with Airflow's own schema and with the core."""

from __future__ import annotations

import importlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.configuration import read_pair
from servicebus_pair.core.endpoint_settings import AUTHENTICATIONS, ENDPOINT_SETTINGS
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.options import PairOptions
from servicebus_pair.get_provider_info import get_provider_info

TYPES: dict[str, Any] = {kind["connection-type"]: kind for kind in get_provider_info()["connection-types"]}
PAIR: dict[str, Any] = TYPES["servicebus_pair"]["conn-fields"]
NAMESPACE: dict[str, Any] = TYPES["servicebus_namespace"]["conn-fields"]
OPTIONS = sorted(option.name for option in fields(PairOptions))
SIDES = ("primary", "secondary")
# What Airflow's standard fields have in our type of a namespace.
STANDARD = {"host", "client_id", "client_secret"}
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


def test_airflow_knows_the_connection_types_their_hooks_and_their_forms():
    from airflow.providers_manager import ProvidersManager

    from servicebus_pair.hooks.servicebus_namespace import ServiceBusNamespaceHook
    from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook

    manager = ProvidersManager()
    widgets = manager.connection_form_widgets
    for hook_class in (ServiceBusPairHook, ServiceBusNamespaceHook):
        found = manager.hooks[hook_class.conn_type]
        assert found is not None
        assert found.hook_class_name == f"{hook_class.__module__}.{hook_class.__name__}"
        assert found.hook_name == hook_class.hook_name
        assert manager.field_behaviours[hook_class.conn_type]["placeholders"]
    secret = {name for name, field in widgets.items() if field.is_sensitive and name.startswith("extra__servicebus_")}
    assert secret == {
        "extra__servicebus_namespace__connection_string",
        *(
            f"extra__servicebus_pair__{side}_{name}"
            for side in SIDES
            for name in ("connection_string", "client_secret")
        ),
    }


def test_airflow_masks_each_secret_field_by_its_name_too():
    """Its API shows the extra of a connection to whoever may read connections."""
    from airflow.sdk.log import redact

    secret = [name for name, field in (PAIR | NAMESPACE).items() if field["schema"].get("format") == "password"]
    assert redact(dict.fromkeys(secret, "c4nary")) == dict.fromkeys(secret, "***")
    assert len(secret) == 5


def test_the_page_gets_the_form_with_its_titles_and_sections():
    from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService

    metas = {meta.connection_type: meta for meta in HookMetaService.hook_meta_data()}
    namespace, pair = metas["servicebus_namespace"], metas["servicebus_pair"]
    assert namespace.standard_fields is not None
    assert namespace.standard_fields.password is not None
    assert namespace.standard_fields.password.title == "Client secret"
    assert pair.extra_fields is not None
    assert pair.extra_fields["ordering"]["schema"]["section"] == "Options"
    assert pair.extra_fields["ordering"]["value"] == "none"


def test_every_setting_of_the_core_is_a_field_and_every_field_a_setting():
    assert set(PAIR) == {f"{side}_{name}" for side in SIDES for name in ("conn_id", *ENDPOINT_SETTINGS)} | set(OPTIONS)
    assert set(NAMESPACE) == set(ENDPOINT_SETTINGS) - STANDARD


def test_a_form_has_sections_and_names_each_field():
    assert {field["schema"]["section"] for field in PAIR.values()} == {
        "Primary namespace",
        "Secondary namespace",
        "Options",
    }
    assert all(field["label"] and field["description"] for field in (*PAIR.values(), *NAMESPACE.values()))


@pytest.mark.parametrize("name", sorted({*PAIR, *NAMESPACE}))
def test_every_schema_is_one_and_accepts_its_default_and_nothing(name: str):
    schema = (PAIR | NAMESPACE)[name]["schema"]
    jsonschema.Draft202012Validator.check_schema(schema)
    assert jsonschema.Draft202012Validator(schema).is_valid(schema.get("default"))
    assert jsonschema.Draft202012Validator(schema).is_valid(None)


@pytest.mark.parametrize("side", SIDES)
def test_the_authentications_of_the_forms_are_those_of_the_core(side: str):
    for schema in (PAIR[f"{side}_authentication"]["schema"], NAMESPACE["authentication"]["schema"]):
        assert schema["enum"] == [*AUTHENTICATIONS, None]
        assert schema["default"] == AUTHENTICATIONS[0]


def test_what_a_form_fills_in_is_what_the_core_does_without():
    """SPEC section 2."""
    defaults = {name: field["schema"].get("default") for name, field in PAIR.items()}
    assert read_pair({**defaults, **ENDPOINTS}) == read_pair(ENDPOINTS)
    assert {name for name in OPTIONS if defaults[name] is None} == set()


def values_around(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """JSON values, above all those around the bounds of a field; none finer than a microsecond, as durations are."""
    bounds = [schema[bound] for bound in ("minimum", "maximum") if bound in schema]
    near = [bound + step for bound in bounds for step in (-1, -1e-6, 0, 1e-6, 1)]
    texts = ["ping", "link", "raise", "fail_over", "none", "session", "connection", "soon"]
    numbers = st.integers(-(10**12), 10**12).map(lambda millionths: millionths / 10**6)
    return st.one_of(
        st.sampled_from([*near, *texts]), numbers, st.integers(-10_000, 10_000), st.booleans(), st.none(), st.just([5])
    )


@pytest.mark.parametrize("name", OPTIONS)
@given(data=st.data())
def test_a_form_takes_what_the_core_takes_and_refuses_what_it_refuses(name: str, data: st.DataObject):
    """SPEC section 2, its ranges."""
    schema = PAIR[name]["schema"]
    value = data.draw(values_around(schema))
    refusal = ""
    try:
        read_pair({**ENDPOINTS, name: value})
    except ConfigurationError as error:
        refusal = str(error)
    assert jsonschema.Draft202012Validator(schema).is_valid(value) is not bool(refusal), value
    assert name in refusal or not refusal
