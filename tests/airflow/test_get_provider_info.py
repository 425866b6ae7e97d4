"""Provider metadata agrees with Airflow's schema and with the core's settings."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import airflow
import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.options import PairOptions
from servicebus_pair.core.pair.endpoint_settings import AUTHENTICATIONS, ENDPOINT_SETTINGS
from servicebus_pair.core.pair.settings import read_pair_settings
from servicebus_pair.get_provider_info import get_provider_info
from tests.airflow.support.versions import needs

TYPES: dict[str, Any] = {kind["connection-type"]: kind for kind in get_provider_info()["connection-types"]}
PAIR: dict[str, Any] = TYPES["servicebus_pair"]["conn-fields"]
NAMESPACE: dict[str, Any] = TYPES["servicebus_namespace"]["conn-fields"]
OPTIONS = sorted(option.name for option in fields(PairOptions))
SIDES = ("primary", "secondary")
# Settings that servicebus_namespace keeps in Airflow's standard fields.
STANDARD = {"host", "client_id", "client_secret"}
ENDPOINTS = {
    "primary_connection_string": "Endpoint=sb://contoso.example/;SharedAccessKeyName=n;SharedAccessKey=k",
    "secondary_connection_string": "Endpoint=sb://contoso-dr.example/;SharedAccessKeyName=n;SharedAccessKey=k",
}


def test_the_provider_info_matches_airflows_schema():
    schema = Path(airflow.__file__).parent / "provider_info.schema.json"

    jsonschema.validate(get_provider_info(), json.loads(schema.read_text()))


@needs("connection_forms")
def test_airflow_loads_connection_types_hooks_and_forms():
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
        "extra__servicebus_pair__spool_secret_key",
    }


def test_airflow_masks_secret_fields_by_name():
    """Airflow's API returns the extra of a connection to all who may read connections."""
    from airflow.sdk._shared.secrets_masker.secrets_masker import redact

    secret = [name for name, field in (PAIR | NAMESPACE).items() if field["schema"].get("format") == "password"]
    assert redact(dict.fromkeys(secret, "c4nary")) == dict.fromkeys(secret, "***")
    assert len(secret) == 6


@needs("connection_forms")
def test_the_ui_receives_titles_and_sections():
    from airflow.api_fastapi.core_api.services.ui.connections import HookMetaService

    metas = {meta.connection_type: meta for meta in HookMetaService.hook_meta_data()}
    namespace, pair = metas["servicebus_namespace"], metas["servicebus_pair"]
    assert namespace.standard_fields is not None
    assert namespace.standard_fields.password is not None
    assert namespace.standard_fields.password.title == "Client secret"
    assert pair.extra_fields is not None
    assert pair.extra_fields["ordering"]["schema"]["section"] == "Options"
    assert pair.extra_fields["ordering"]["value"] == "none"


def test_fields_are_the_core_settings_with_section_label_and_description():
    assert set(PAIR) == {f"{side}_{name}" for side in SIDES for name in ("conn_id", *ENDPOINT_SETTINGS)} | set(OPTIONS)
    assert set(NAMESPACE) == set(ENDPOINT_SETTINGS) - STANDARD
    sections = {field["schema"]["section"] for field in PAIR.values()}
    assert sections == {"Primary namespace", "Secondary namespace", "Options"}
    assert all(field["label"] and field["description"] for field in (*PAIR.values(), *NAMESPACE.values()))


def test_every_field_schema_is_valid_and_accepts_its_default_and_null():
    for name, field in (PAIR | NAMESPACE).items():
        schema = field["schema"]
        jsonschema.Draft202012Validator.check_schema(schema)
        assert jsonschema.Draft202012Validator(schema).is_valid(schema.get("default")), name
        assert jsonschema.Draft202012Validator(schema).is_valid(None), name


@pytest.mark.parametrize("side", SIDES)
def test_the_authentication_choices_are_those_of_the_core(side: str):
    for schema in (PAIR[f"{side}_authentication"]["schema"], NAMESPACE["authentication"]["schema"]):
        assert schema["enum"] == [*AUTHENTICATIONS, None]
        assert schema["default"] == AUTHENTICATIONS[0]


def test_form_defaults_equal_core_defaults():
    """SPEC section 2."""
    defaults = {name: field["schema"].get("default") for name, field in PAIR.items()}
    assert read_pair_settings({**defaults, **ENDPOINTS}) == read_pair_settings(ENDPOINTS)
    assert {name for name in OPTIONS if defaults[name] is None} == {"spool", "spool_secret_key"}


def values_around(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    """JSON values, most of them near the bounds of a field, and no finer than the microseconds of durations."""
    bounds = [schema[bound] for bound in ("minimum", "maximum") if bound in schema]
    near = [bound + step for bound in bounds for step in (-1, -1e-6, 0, 1e-6, 1)]
    texts = [
        "ping",
        "link",
        "raise",
        "fail_over",
        "none",
        "session",
        "connection",
        "soon",
        "/spool",
        "s3://bucket/spool",
    ]
    numbers = st.integers(-(10**12), 10**12).map(lambda millionths: millionths / 10**6)
    return st.one_of(
        st.sampled_from([*near, *texts]), numbers, st.integers(-10_000, 10_000), st.booleans(), st.none(), st.just([5])
    )


@pytest.mark.parametrize("name", OPTIONS)
@given(data=st.data())
def test_forms_and_core_accept_the_same_values(name: str, data: st.DataObject):
    """SPEC section 2, its ranges."""
    schema = PAIR[name]["schema"]
    value = data.draw(values_around(schema))
    refusal = ""
    try:
        read_pair_settings({**ENDPOINTS, name: value})
    except ConfigurationError as error:
        refusal = str(error)
    assert jsonschema.Draft202012Validator(schema).is_valid(value) is not bool(refusal), value
    assert name in refusal or not refusal
