"""A secret in any field of a pair's settings, an endpoint or an identity comes back in no error and no ``repr``."""

from __future__ import annotations

from dataclasses import MISSING, fields
from datetime import timedelta
from typing import Any

import pytest

from servicebus_pair.core import (
    ArmCoordinates,
    ClientSecret,
    DefaultIdentity,
    Endpoint,
    ManagedIdentity,
    PairOptions,
    Secret,
    read_pair_settings,
)
from servicebus_pair.core.errors import ConfigurationError, UnreachableError
from servicebus_pair.core.model import OPTION_CHECKS, learn_secrets, redaction, scrub
from servicebus_pair.core.pair import ENDPOINT_SETTINGS, REFERENCE, SIDES, SettingsReference, read_endpoint
from tests.security.canaries import CANARIES, disclosed, outcome

HOST = "contoso.servicebus.windows.net"
STRING = f"Endpoint=sb://{HOST}/;SharedAccessKeyName=a;SharedAccessKey=b"
# One valid setting of each authentication, so that every field is reached.
BASES: dict[str, dict[str, Any]] = {
    "connection_string": {"connection_string": STRING},
    "default": {"authentication": "default", "host": HOST},
    "client_secret": {
        "authentication": "client_secret",
        "host": HOST,
        "tenant_id": "t",
        "client_id": "c",
        "client_secret": "a secret of one's own",
    },
    "managed_identity": {"authentication": "managed_identity", "host": HOST},
    "arm": {"connection_string": STRING, "subscription_id": "s", "resource_group": "g"},
}
OTHER = {f"{side}_connection_string": STRING.replace("contoso", f"contoso-{side}") for side in SIDES}
NAMES = [*OPTION_CHECKS, *(f"{side}_{name}" for side in SIDES for name in (*ENDPOINT_SETTINGS, REFERENCE, "unknown"))]
VALUES = [
    *(Endpoint(host=HOST, namespace="contoso", administration=HOST), PairOptions()),
    *(ArmCoordinates(subscription_id="s", resource_group="g", credential=None), DefaultIdentity(), ManagedIdentity()),
    ClientSecret(tenant_id="t", client_id="c", client_secret=Secret("s")),
]


@pytest.mark.parametrize("canary", CANARIES.values(), ids=CANARIES)
def test_no_setting_of_a_namespace_discloses_a_secret(canary: Any):
    leaks = [
        (way, name)
        for way, base in BASES.items()
        for name in (*ENDPOINT_SETTINGS, "unknown")
        if disclosed(outcome(lambda base=base, name=name: read_endpoint({**base, name: canary})))  # type: ignore[misc]
    ]

    assert leaks == []


@pytest.mark.parametrize("canary", CANARIES.values(), ids=CANARIES)
def test_no_setting_of_a_pair_discloses_a_secret_and_no_name_of_one(canary: Any):
    leaks = [
        name
        for name in NAMES
        if disclosed(outcome(lambda name=name: read_pair_settings({**OTHER, name: canary})))  # type: ignore[misc]
    ]
    named = outcome(lambda: read_pair_settings({**OTHER, str(canary): "value"}))

    assert leaks == []
    assert not disclosed(named)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_no_field_of_a_value_discloses_a_secret(value: Any):
    given = {each.name: getattr(value, each.name) for each in fields(value) if each.init}

    leaks = [
        (name, kind)
        for name in given
        for kind, canary in CANARIES.items()
        if disclosed(outcome(lambda changed={**given, name: canary}: type(value)(**changed)))  # type: ignore[misc]
    ]

    assert leaks == []
    assert all(each.default is not MISSING or each.name in given for each in fields(value))


@pytest.mark.parametrize("name", ["transport", "ca_file", "endpoint_address", "administration", "namespace", "host"])
def test_a_connection_string_in_the_wrong_field_is_told_where_it_belongs(name: str):
    with pytest.raises(ConfigurationError, match=f"{name} holds a connection string.*belongs in connection_string"):
        read_endpoint({**BASES["default"], name: CANARIES["connection string"]})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("administration", value) for value in ("a b", "sb://a", "a/b", "a:port", "a?x=y", "u:p@a")),
        *(("endpoint_address", value) for value in ("gateway:443", "sb://a/b", "sb://u:p@a", "sb://a?b", "https://a")),
        *(("namespace", value) for value in ("a/b", "a b", "a\nb", "../a")),
        *(("authority", value) for value in ("http://a", "https://u:p@a", "a\r\nb", "https://a?b", "a#.b")),
    ],
)
def test_hosts_addresses_and_names_are_validated_as_such(name: str, value: str):
    base = BASES["client_secret" if name == "authority" else "connection_string"]

    with pytest.raises(ConfigurationError, match=f"{name} (is not allowed: it must be|holds a password)"):
        read_endpoint({**base, name: value})


@pytest.mark.parametrize("base", ["default", "arm", "client_secret"])
@pytest.mark.parametrize(
    ("authority", "allowed"),
    [
        *((host, True) for host in ("login.microsoftonline.com", "https://login.microsoftonline.us/", "127.0.0.1:1")),
        *((host, False) for host in ("evil.example", "https://login.microsoftonline.com.evil.example", "10.0.0.1:443")),
    ],
)
def test_what_the_machine_proves_itself_with_goes_to_token_services_of_azure_only(
    base: str, authority: str, allowed: bool
):
    given = {**BASES[base], "authority": authority}

    if allowed or base == "client_secret":
        read_endpoint(given)
    else:
        with pytest.raises(ConfigurationError, match="setting authority is not a host of Azure or this machine"):
            read_endpoint(given)
        read_endpoint({**given, "allow_other_hosts": True})


def test_the_key_of_the_spool_is_in_its_place_and_not_shown():
    key = str(CANARIES["key"]).replace("+", "-").replace("/", "_")

    found = read_pair_settings({**OTHER, "spool": "/spool", "spool_secret_key": key})

    assert found.options.spool_secret_key == Secret(key)
    assert not disclosed(repr(found))


@pytest.mark.parametrize(
    "location",
    [
        "ftp://bob:c4nary-one@host/spool",
        "s3://AKIA:c4nary/two+c4nary@bucket/spool",
        "simplecache::ftp://bob:c4nary@host/spool",
        "//bob:c4nary@host/spool",
        "https://host/spool?user=c4nary",
    ],
)
def test_the_location_of_the_spool_has_no_credentials(location: str):
    with pytest.raises(ConfigurationError, match=r"spool (is a URL with credentials|holds a password)") as raised:
        read_pair_settings({**OTHER, "spool": location})

    assert not disclosed(str(raised.value))


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1/spool",
        "HTTPS://127.0.0.1",
        "simplecache::http://127.0.0.1/x",
        "reference://x",
        "zip:///x.zip",
        "memory://x",
    ],
)
def test_a_spool_makes_nobody_call_the_host_that_it_names(location: str):
    with pytest.raises(ConfigurationError, match="which is no object store to write to"):
        read_pair_settings({**OTHER, "spool": location})


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sb://bob:c4nary/with/slash@host", "sb://bob:***@host"),
        ("/home/simplecache::ftp:/bob:c4nary@host/x", "/home/simplecache::ftp:/bob:***@host/x"),
        ("amqps://a:b%2Fc@host, http://127.0.0.1:80/a@b", "amqps://a:***@host, http://127.0.0.1:80/a@b"),
    ],
)
def test_the_password_of_a_url_is_masked_however_it_is_written(text: str, shown: str):
    assert scrub(text) == shown


def test_learned_secrets_of_any_shape_are_masked_in_later_errors():
    learn_secrets(["a password that looks like none", "short"])

    error = UnreachableError("proxy refused: a password that looks like none; short")

    assert str(error) == "proxy refused: ***; short"
    assert error.args == (str(error),)
    assert scrub("short", ["short"]) == "***"


def test_ordinary_texts_are_not_masked():
    text = (
        "connection string: SharedAccessKeyName is missing; message 3f2504e0-4f89-11d3-9a0c-0305e82c3301 of "
        "contoso/x-servicebus-transfer/0 at https://management.azure.com/subscriptions/"
        "00000000-0000-0000-0000-000000000000/resourceGroups/rg/providers/Microsoft.ServiceBus"
    )

    assert scrub(text) == text
    assert outcome(lambda: PairOptions(ping_timeout=timedelta(0))).count("ping_timeout is 0:00:00") > 0


@pytest.mark.parametrize(
    "learned", ["SharedAccessKey=c4nary+c", "c4nary0c4nary1", "net/;SharedAccess", "=c4nary+c4nary/c4"]
)
@pytest.mark.parametrize("canary", ["connection string", "connection string in JSON", "key", "signature"])
def test_a_learned_secret_hides_no_other_from_the_search(learned: str, canary: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(redaction, "_learned", {learned: None})

    assert not disclosed(scrub(f"the value is {CANARIES[canary]!r}"))


@pytest.mark.parametrize("owner", ["default", "client_secret", "connection_string"])
@pytest.mark.parametrize(
    "added",
    [
        {"administration": "evil.example:443"},
        {"administration": "contoso.servicebus.windows.net.evil.example"},
        {"endpoint_address": "sb://evil.example:443"},
        {"management_endpoint": "https://evil.example", "subscription_id": "s", "resource_group": "g"},
        {"administration": "evil.example:443", "allow_other_hosts": True},
    ],
)
def test_a_pair_sends_tokens_of_another_connection_to_no_host_that_this_one_does_not_allow(
    owner: str, added: dict[str, Any]
):
    given = {**OTHER, "primary_conn_id": "theirs", **{f"primary_{name}": value for name, value in added.items()}}
    theirs = {key: value for key, value in BASES[owner].items() if key not in added}
    for name in ("primary_connection_string", "primary_host", "primary_authentication"):
        given.pop(name, None)

    with pytest.raises(ConfigurationError, match=r"not a host of Azure or this machine|both given"):
        read_pair_settings(given, referenced={"primary": SettingsReference("connection theirs", theirs)})
    given.pop("primary_allow_other_hosts", None)
    allowed = SettingsReference("connection theirs", {**theirs, "allow_other_hosts": True})
    assert read_pair_settings(given, referenced={"primary": allowed}).primary.namespace == "contoso"
