"""Settings of one namespace (SPEC section 2)."""

from __future__ import annotations

import pickle
import traceback
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.options import ArmCoordinates, Secret
from servicebus_pair.core.pair.endpoint_settings import AUTHENTICATIONS, check_added_hosts, find_secrets, read_endpoint
from servicebus_pair.core.pair.settings import SettingsReference, read_pair_settings
from servicebus_pair.core.sdk.credentials import ClientSecret, DefaultIdentity, Identity, ManagedIdentity

KEY = "c4nary-key"
SECRET = "c4nary-client-secret"
STRING = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=a;SharedAccessKey={KEY}"
OTHER = STRING.replace("contoso", "contoso-dr")
HOST = "contoso.servicebus.windows.net"
PRINCIPAL = {"tenant_id": "t", "client_id": "c", "client_secret": SECRET}
SERVICE_PRINCIPAL = ClientSecret(tenant_id="t", client_id="c", client_secret=Secret(SECRET))
BY_SECRET = {"authentication": "client_secret", "host": HOST, **PRINCIPAL}
ARM = {"subscription_id": "s", "resource_group": "g"}

IDENTITIES: list[tuple[dict[str, Any], Identity]] = [
    ({"authentication": "default"}, DefaultIdentity()),
    ({"authentication": "default", "client_id": "c", "tenant_id": "t"}, DefaultIdentity(client_id="c", tenant_id="t")),
    ({"authentication": "managed_identity"}, ManagedIdentity()),
    ({"authentication": "managed_identity", "client_id": "c"}, ManagedIdentity(client_id="c")),
    (
        {"authentication": "client_secret", **PRINCIPAL, "authority": "login.microsoftonline.us"},
        ClientSecret(tenant_id="t", client_id="c", client_secret=Secret(SECRET), authority="login.microsoftonline.us"),
    ),
]


@pytest.mark.parametrize(("settings", "identity"), IDENTITIES)
def test_authentication_selects_identity(settings: dict[str, Any], identity: Identity) -> None:
    endpoint = read_endpoint({"host": HOST, **settings})
    assert (endpoint.host, endpoint.namespace, endpoint.connection_string) == (HOST, "contoso", None)
    assert endpoint.credential == identity


def test_every_authentication_is_tested() -> None:
    assert {settings["authentication"] for settings, _ in IDENTITIES} | {"connection_string"} == set(AUTHENTICATIONS)


@pytest.mark.parametrize(
    ("settings", "identity"),
    [
        ({"connection_string": STRING}, DefaultIdentity()),
        ({"connection_string": STRING, **PRINCIPAL}, SERVICE_PRINCIPAL),
        (BY_SECRET, SERVICE_PRINCIPAL),
        ({"authentication": "managed_identity", "host": HOST}, ManagedIdentity()),
    ],
    ids=["key, default identity", "key, client secret", "client secret", "managed identity"],
)
def test_resource_manager_identity_follows_authentication(settings: dict[str, Any], identity: Identity) -> None:
    found = read_endpoint({**settings, **ARM, "management_endpoint": "https://management.usgovcloudapi.net"})
    assert found.arm == ArmCoordinates(
        subscription_id="s",
        resource_group="g",
        credential=identity,
        management_endpoint="https://management.usgovcloudapi.net",
    )


@pytest.mark.parametrize(("size", "read"), [(0, False), (1, True), (16 * 2**20, True), (16 * 2**20 + 1, False)])
def test_a_ca_file_has_the_size_of_one(size: int, read: bool, tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    with authorities.open("wb") as file:
        file.truncate(size)
    with nullcontext() if read else pytest.raises(ConfigurationError, match="has more than 16 MiB"):
        read_endpoint({**BY_SECRET, "ca_file": str(authorities)})


def test_ca_file_and_endpoint_address_are_read(tmp_path: Path) -> None:
    authorities = tmp_path / "ca.pem"
    authorities.write_text("-")
    found = read_endpoint(
        {**BY_SECRET, "ca_file": str(authorities), "endpoint_address": "sb://gateway:443", "emulator": "false"}
    )
    assert (found.ca_file, found.endpoint_address, found.emulator) == (str(authorities), "sb://gateway:443", False)
    assert found.credential.ca_file == str(authorities)


def test_emulator_is_used_without_tls() -> None:
    found = read_endpoint({**BY_SECRET, "host": "127.0.0.1:5672", "namespace": "contoso", "emulator": "true"})
    assert (found.host, found.emulator) == ("127.0.0.1:5672", True)


def test_defaults_of_the_connection_form_count_as_absent() -> None:
    filled = {"authentication": "connection_string", "emulator": False, "host": "", "client_secret": None}
    by_key = read_endpoint({"connection_string": STRING})
    assert read_endpoint({"connection_string": STRING, **filled}) == by_key
    assert read_endpoint({"connection_string": STRING, "emulator": "false"}) == by_key


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"authentication": "password"},
            "setting authentication is 'password': allowed are connection_string, default",
        ),
        ({}, "setting connection_string is missing, or is not text: authentication 'connection_string' requires"),
        ({"host": HOST}, "setting connection_string is missing, or is not text"),
        ({"connection_string": {"key": KEY}}, "setting connection_string is missing, or is not text"),
        ({"authentication": "default"}, "setting host is missing, or is not text: authentication 'default' requires"),
        ({**BY_SECRET, "tenant_id": None}, "setting tenant_id is missing"),
        (
            {"authentication": "default"},
            "; other authentications are connection_string, client_secret, managed_identity",
        ),
        ({**BY_SECRET, "client_secret": ""}, "setting client_secret is missing"),
        ({"connection_string": STRING, "host": HOST}, "setting host is given, but authentication is"),
        ({"connection_string": STRING, **PRINCIPAL}, "setting tenant_id is given, but authentication is"),
        ({**BY_SECRET, "connection_string": STRING}, "setting connection_string is given, but authentication is"),
        (
            {"authentication": "managed_identity", "host": HOST, "client_secret": SECRET},
            "setting client_secret is given, but authentication is 'managed_identity', which does not use it",
        ),
        ({"authentication": "managed_identity", "host": HOST, **ARM, "tenant_id": "t"}, "setting tenant_id is given"),
        ({"connection_string": STRING, "emulator": True}, "setting emulator is given, but authentication is"),
        ({**BY_SECRET, "emulator": True}, "setting host: emulator is True, which sends tokens without TLS"),
        ({**BY_SECRET, "transport": "k" * 43}, "setting transport is a value that is not shown: allowed are amqp"),
        ({**BY_SECRET, "emulator": "perhaps"}, "setting emulator is 'perhaps': allowed are true and false"),
        ({**BY_SECRET, "host": f"https://{HOST}"}, "setting host: the host is not allowed: it must be a host name"),
        ({**BY_SECRET, "host": STRING}, "setting host holds a connection string"),
        ({**BY_SECRET, "host": "127.0.0.1:5672"}, "setting host: namespace is not given and the host '127.0.0.1:5672'"),
        ({**BY_SECRET, "subscription_id": "s"}, "setting resource_group is missing: management through"),
        ({**BY_SECRET, "management_endpoint": "https://a"}, "setting subscription_id is missing: management through"),
        ({**BY_SECRET, "namespace": 5}, "setting namespace is a int: it must be text"),
        ({**BY_SECRET, "ca_file": "/no/such/file"}, "setting ca_file is '/no/such/file': the file does not exist"),
        # Of the kernel: reading some of these never ends.
        ({**BY_SECRET, "ca_file": "/proc/self/stat"}, "the file does not exist on this machine, is empty, or has more"),
        ({**BY_SECRET, "ca_file": "/dev/zero"}, "setting ca_file is '/dev/zero': the file does not exist"),
        ({**BY_SECRET, "ca_file": "a" * 5000}, "setting ca_file is a path that is not shown: the file"),
        ({"connection_string": STRING, **ARM, "client_secret": SECRET}, "setting tenant_id is missing"),
        ({**BY_SECRET, "hots": HOST, "aost": HOST, "zost": HOST}, "setting aost is unknown: allowed are"),
        ({**BY_SECRET, "hots": HOST}, "setting hots is unknown: allowed are administration, allow_other_hosts, "),
    ],
)
def test_invalid_setting_is_named_with_what_is_allowed(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read_endpoint(settings)
    assert message in str(caught.value)
    assert "c4nary" not in "".join(traceback.format_exception(caught.value))


def reference(**settings: Any) -> dict[str, SettingsReference]:
    return {"primary": SettingsReference("connection there", settings, fields={"client_secret": "password"})}


@pytest.mark.parametrize("authentication", ["default", "managed_identity"])
@pytest.mark.parametrize(
    ("setting", "host", "known"),
    [
        ("host", HOST, True),
        ("host", "contoso.servicebus.usgovcloudapi.net", True),
        ("host", "127.0.0.1:5672", True),
        ("host", "contoso.servicebus.windows.net.evil.example", False),
        ("host", "evil.example", False),
        ("administration", "127.0.0.1:5300", True),
        ("administration", "evil.example:5300", False),
        ("endpoint_address", "sb://localhost:5672", True),
        ("endpoint_address", "sb://gateway.example:443", False),
        ("management_endpoint", "https://management.azure.com/", True),
        ("management_endpoint", "https://evil.example", False),
    ],
)
def test_tokens_of_the_machine_go_to_azure_and_to_this_machine_only_unless_others_are_allowed(
    authentication: str, setting: str, host: str, known: bool
) -> None:
    arm = ARM if setting == "management_endpoint" else {}
    given = {"authentication": authentication, "host": HOST, "namespace": "contoso", **arm, setting: host}
    assert read_endpoint({**given, "allow_other_hosts": "true"}).namespace == "contoso"
    for refused in ({}, {"allow_other_hosts": False}):
        if known:
            read_endpoint({**given, **refused})
            continue
        with pytest.raises(ConfigurationError, match=f"setting {setting} is not a host of Azure or this machine"):
            read_endpoint({**given, **refused})


def test_a_client_secret_goes_where_it_is_told_to_and_a_connection_string_takes_no_identity_along() -> None:
    found = read_endpoint({**BY_SECRET, **ARM, "host": "gateway.example", "management_endpoint": "https://a.example"})
    assert (found.host, found.arm is not None) == ("gateway.example", True)
    read_endpoint({"connection_string": STRING, "endpoint_address": "sb://gateway.example"})
    with pytest.raises(ConfigurationError, match="setting management_endpoint is not a host of Azure"):
        read_endpoint({"connection_string": STRING, **ARM, "management_endpoint": "https://a.example"})


@pytest.mark.parametrize(
    ("owner", "allowed"),
    [({}, False), ({"allow_other_hosts": "false"}, False), ({"allow_other_hosts": "true"}, True)],
)
def test_a_host_that_is_added_to_the_credential_of_another_is_known_unless_its_owner_allows_others(
    owner: dict[str, Any], allowed: bool
) -> None:
    for added, known in (({"host": "127.0.0.1:5672"}, True), ({"host": "evil.example"}, False)):
        if known or allowed:
            check_added_hosts(added, owner=owner, label=str, lifted_by="allow")
            continue
        with pytest.raises(ConfigurationError, match=r"of the credential that is referred to: allowed with allow$"):
            check_added_hosts(added, owner=owner, label=str, lifted_by="allow")


def test_reference_can_be_combined_with_settings_it_lacks() -> None:
    given = {"primary_conn_id": "there", "primary_namespace": "north", "secondary_connection_string": OTHER}
    found = read_pair_settings(given, referenced=reference(**BY_SECRET))
    assert (found.primary.host, found.primary.namespace) == (HOST, "north")
    assert found.primary.credential == read_endpoint(BY_SECRET).credential


@pytest.mark.parametrize(
    ("given", "settings", "message"),
    [
        (
            {"primary_connection_string": STRING},
            BY_SECRET,
            "settings primary_conn_id and primary_connection_string are both given: give the namespace either",
        ),
        ({"primary_namespace": "n"}, {**BY_SECRET, "namespace": "m"}, "and namespace of connection there as well"),
        ({}, {**BY_SECRET, "client_secret": None}, "setting password of connection there is missing"),
        ({}, {**BY_SECRET, "namespace": 5}, "setting namespace of connection there is a int"),
        ({"primary_namespace": 5}, BY_SECRET, "setting primary_namespace is a int"),
        ({}, {"foo": 5, **BY_SECRET}, "setting foo of connection there is unknown"),
    ],
)
def test_invalid_referenced_setting_is_named_with_its_place(
    given: dict[str, Any], settings: dict[str, Any], message: str
) -> None:
    pair = {"primary_conn_id": "there", "secondary_connection_string": OTHER, **given}
    with pytest.raises(ConfigurationError) as caught:
        read_pair_settings(pair, referenced=reference(**settings))
    assert message in str(caught.value)
    assert "c4nary" not in "".join(traceback.format_exception(caught.value))


def test_reference_outside_of_airflow_is_rejected_with_advice() -> None:
    with pytest.raises(
        ConfigurationError, match=r"primary_conn_id is 'there': .* only Airflow .* such as primary_conn"
    ):
        read_pair_settings({"primary_conn_id": "there", "secondary_connection_string": OTHER})


def test_repr_hides_secrets_and_pickle_keeps_them() -> None:
    found = read_endpoint({**BY_SECRET, **ARM})
    by_key = read_endpoint({"connection_string": STRING, **ARM, **PRINCIPAL})
    for each in (found, by_key):
        assert "c4nary" not in f"{each!r} {each} {each.arm!r} {each.credential!r}"
        assert pickle.loads(pickle.dumps(each)) == each  # noqa: S301  our own pickle


def test_find_secrets_returns_every_encoding() -> None:
    signed = "Endpoint=sb://h/;SharedAccessSignature=SharedAccessSignature sr=sb%3a%2f%2fh&sig=c4n%2bary%3d&se=1&skn=a"
    found = find_secrets(
        {"ordering": 5, "primary_connection_string": signed, "secondary_client_secret": SECRET, "primary_host": HOST}
    )
    assert {signed, signed.partition("SharedAccessSignature=")[2], "c4n%2bary%3d", "c4n+ary=", SECRET} <= set(found)
    assert HOST not in found
    assert KEY in find_secrets({"connection_string": STRING})
    assert {'a"+/=', r"a\"+/=", "a%22%2B%2F%3D", "a%5C%22%2B%2F%3D"} == set(find_secrets({"client_secret": 'a"+/='}))
    assert sorted(found, key=len, reverse=True) == found
