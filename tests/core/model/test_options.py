"""Options and endpoints (SPEC section 2)."""

from __future__ import annotations

import copy
import pickle
import traceback
from dataclasses import FrozenInstanceError, asdict, fields, replace
from datetime import timedelta
from typing import Any

import pendulum
import pytest
from azure.servicebus import ServiceBusClient
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.options import ArmCoordinates, Endpoint, PairOptions, Secret, _secret, check_distinct

KEY = "c2VjcmV0LWtleS1vZi10aGUtdGVzdHM="
TEXT = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=send;SharedAccessKey={KEY}"
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
TICK = timedelta(microseconds=1)


def test_default_options() -> None:
    assert asdict(PairOptions()) == {
        "backlog_queue_count": 10,
        "failover_interval": MINUTE,
        "ping_primary_interval": MINUTE,
        "ping_timeout": 2 * MINUTE,
        "enable_syphon": False,
        "syphon_retry_interval": SECOND,
        "syphon_batch_size": 500,
        "syphon_max_bytes": 64 * 2**20,
        "syphon_long_poll": 15 * MINUTE,
        "close_grace": 5 * SECOND,
        "server_busy_delay": 10 * SECOND,
        "attempt_timeout": 10 * SECOND,
        "health_refresh": 5 * SECOND,
        "max_idle_connections": 100,
        "on_quota_exceeded": "raise",
        "on_entity_disabled": "raise",
        "probe": "ping",
        "ordering": "none",
        "spool": None,
        "spool_max_bytes": 10 * 1024**3,
        "spool_max_age": timedelta(days=14),
        "spool_secret_key": None,
    }


def test_an_endpoint_is_azure_over_amqp_by_default() -> None:
    host = "contoso.servicebus.windows.net"
    endpoint = Endpoint(host=host, namespace="contoso", administration=host)
    assert (endpoint.emulator, endpoint.transport, endpoint.connection_string) == (False, "amqp", None)


@pytest.mark.parametrize(
    ("option", "choices"),
    [
        ("on_quota_exceeded", ("raise", "fail_over")),
        ("on_entity_disabled", ("raise", "fail_over")),
        ("probe", ("ping", "link")),
        ("ordering", ("none", "session")),
    ],
)
def test_option_accepts_only_its_choices(option: str, choices: tuple[str, ...]) -> None:
    settings: dict[str, Any] = {choice: {option: choice} for choice in (*choices, "never")}
    for choice in choices:
        assert getattr(replace(PairOptions(), **settings[choice]), option) == choice
    with pytest.raises(ConfigurationError) as caught:
        replace(PairOptions(), **settings["never"])
    assert str(caught.value) == f"{option} is 'never': allowed are {', '.join(choices)}"


@pytest.mark.parametrize(
    ("option", "low", "high", "step", "allowed"),
    [
        ("backlog_queue_count", 1, None, 1, "whole number from 1"),
        ("failover_interval", timedelta(0), 60 * MINUTE, TICK, "seconds, from 0 to 3600 s"),
        ("ping_primary_interval", SECOND, 30 * MINUTE, TICK, "seconds, from 1 to 1800 s"),
        ("ping_timeout", timedelta(milliseconds=1), None, TICK, "seconds, from 0.001 s"),
        ("syphon_retry_interval", SECOND, 2 * MINUTE, TICK, "seconds, from 1 to 120 s"),
        ("syphon_batch_size", 1, 4500, 1, "whole number from 1 to 4500"),
        ("syphon_max_bytes", 2**20, None, 1, "whole number from 1048576"),
        ("syphon_long_poll", SECOND, None, TICK, "seconds, from 1 s"),
        ("close_grace", timedelta(0), None, TICK, "seconds, from 0 s"),
        ("server_busy_delay", timedelta(0), None, TICK, "seconds, from 0 s"),
        ("attempt_timeout", timedelta(milliseconds=1), None, TICK, "seconds, from 0.001 s"),
        ("health_refresh", timedelta(milliseconds=1), None, TICK, "seconds, from 0.001 s"),
        ("max_idle_connections", 1, None, 1, "whole number from 1"),
        ("spool_max_bytes", 1, None, 1, "whole number from 1"),
        ("spool_max_age", SECOND, None, TICK, "seconds, from 1 s"),
    ],
)
def test_option_is_accepted_within_its_range_and_rejected_with_value_and_range_beyond(
    option: str, low: Any, high: Any, step: Any, allowed: str
) -> None:
    value: Any
    for value in (low, (10**9 if step == 1 else timedelta.max) if high is None else high):
        assert getattr(replace(PairOptions(), **{option: value}), option) == value
    for value in (low - step, *([] if high is None else [high + step])):
        with pytest.raises(ConfigurationError) as caught:
            replace(PairOptions(), **{option: value})
        assert str(caught.value).startswith(f"{option} is {value}: it must be a ")
        assert str(caught.value).endswith(allowed)


@pytest.mark.parametrize("value", [None, "5", 1.5, [], object()], ids=["none", "text", "float", "list", "object"])
def test_option_of_wrong_type_is_rejected_by_name(value: Any) -> None:
    none_by_default = {"spool", "spool_secret_key"} if value is None else set[str]()
    for option in {field.name for field in fields(PairOptions)} - none_by_default:
        with pytest.raises(ConfigurationError, match=f"^{option} is "):
            replace(PairOptions(), **{option: value})


@pytest.mark.parametrize(
    "location", ["/mnt/spool", "file:///mnt/spool", "s3://bucket/spool", "abfss://container@account.dfs.core/spool"]
)
def test_a_spool_is_a_folder_or_a_url(location: str) -> None:
    assert PairOptions(spool=location).spool == location


@pytest.mark.parametrize("location", ["", " ", "spool", "./spool", "bucket:spool", "C:\\spool"])
def test_another_location_of_the_spool_is_refused_with_its_value(location: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^spool is .* must be an absolute path or a URL") as caught:
        PairOptions(spool=location)
    assert repr(location) in str(caught.value)


@pytest.mark.parametrize(
    "url", ["s3://key:canary@bucket/spool", "az://c/spool?sig=canary", "Endpoint=sb://c.net/;SharedAccessKey=canary"]
)
def test_secrets_in_the_location_of_the_spool_are_refused_without_being_quoted(url: str) -> None:
    with pytest.raises(
        ConfigurationError, match=r"^spool is (a URL with credentials|a text that is not shown)"
    ) as caught:
        PairOptions(spool=url)
    assert "canary" not in str(caught.value)


def test_options_do_not_show_the_key_of_the_spool() -> None:
    assert "canary" not in repr(PairOptions(spool_secret_key=Secret("canary")))


def test_option_types_are_not_converted() -> None:
    with pytest.raises(ConfigurationError, match="backlog_queue_count is True: it must be of type int"):
        PairOptions(backlog_queue_count=True)
    with pytest.raises(ConfigurationError, match="enable_syphon is 1: it must be of type bool"):
        PairOptions(enable_syphon=1)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="failover_interval is 60: it must be of type timedelta"):
        PairOptions(failover_interval=60)  # type: ignore[arg-type]


def test_options_are_frozen_hashable_and_picklable() -> None:
    options = PairOptions()
    with pytest.raises(FrozenInstanceError):
        options.backlog_queue_count = 3  # type: ignore[misc]
    assert options == PairOptions()
    assert hash(options) == hash(PairOptions())
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301 - our own bytes


def test_pendulum_duration_is_accepted() -> None:
    assert PairOptions(failover_interval=pendulum.duration(seconds=5)).failover_interval == 5 * SECOND


def test_connection_string_sets_host_namespace_and_administration() -> None:
    endpoint = Endpoint.from_connection_string(TEXT)
    assert (endpoint.host, endpoint.namespace) == ("contoso.servicebus.windows.net", "contoso")
    assert endpoint.administration == endpoint.host
    assert (endpoint.emulator, endpoint.transport, endpoint.credential) == (False, "amqp", None)
    assert endpoint.connection_string is not None
    assert endpoint.connection_string.reveal() == TEXT


def test_namespace_of_local_host_is_an_argument() -> None:
    text = f"Endpoint=sb://127.0.0.1:5673;SharedAccessKeyName=a;SharedAccessKey={KEY};UseDevelopmentEmulator=true;"
    endpoint = Endpoint.from_connection_string(text, namespace="contoso", administration="127.0.0.1:5300")
    assert (endpoint.host, endpoint.namespace, endpoint.administration) == (
        "127.0.0.1:5673",
        "contoso",
        "127.0.0.1:5300",
    )
    assert endpoint.emulator is True


def test_shared_access_signature_needs_no_key() -> None:
    text = "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessSignature=SharedAccessSignature sr=x&sig=y"
    assert Endpoint.from_connection_string(text).namespace == "contoso"


def test_endpoint_from_credential_has_no_connection_string() -> None:
    credential = object()
    endpoint = Endpoint.from_credential("contoso.servicebus.windows.net", credential)
    assert endpoint.namespace == "contoso"
    assert (endpoint.credential, endpoint.connection_string) == (credential, None)
    assert (endpoint.administration, endpoint.emulator, endpoint.transport) == (endpoint.host, False, "amqp")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "Endpoint is missing"),
        (KEY, "Endpoint is missing"),
        (f"Endpoint=https://contoso/;SharedAccessKeyName=a;SharedAccessKey={KEY}", "does not start with sb://"),
        (f"Endpoint=sb://;SharedAccessKeyName=a;SharedAccessKey={KEY}", "host is ''"),
        (f"Endpoint=sb://c.servicebus.windows.net;SharedAccessKey={KEY}", "SharedAccessKeyName is missing"),
        (f"Endpoint=sb://c.servicebus.windows.net;SharedAccessKeyName={KEY}", "SharedAccessKey is missing"),
        (f"Endpoint=sb://c.x.net;SharedAccessKeyName={KEY};SharedAccessKey=", "SharedAccessKey is missing"),
        (f"{TEXT};EntityPath=flights", "EntityPath is given"),
        (f"{TEXT};Other", "a part is not of the form Name=value"),
        (f"{TEXT};={KEY}", "a part is not of the form Name=value"),
        (f"{TEXT};SharedAccessSignature={KEY}", "SharedAccessKeyName is given, and SharedAccessSignature as well"),
        (f"{TEXT};UseDevelopmentEmulator={KEY}", "UseDevelopmentEmulator must be true or false"),
        (TEXT.replace(".net", f".net/{KEY}"), "the host is not allowed: it must be a host name"),
        (TEXT.replace(".net", f".net:{KEY}"), "the host is not allowed: it must be a host name"),
        (TEXT.replace("contoso.", "con toso."), "the host is not allowed: it must be a host name"),
        (TEXT.replace("contoso.servicebus.windows.net", "127.0.0.1:5672"), "namespace is not given"),
        (TEXT.replace("contoso.servicebus.windows.net", "localhost"), "namespace is not given"),
    ],
)
def test_invalid_connection_string_is_rejected_without_quoting_it(text: str, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named) as caught:
        Endpoint.from_connection_string(text)
    assert KEY not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    ("host", "credential", "named"),
    [
        ("", object(), "host is ''"),
        ("contoso.servicebus.windows.net", None, "credential is None"),
        ("localhost", object(), "namespace is not given"),
    ],
)
def test_invalid_host_or_credential_is_rejected_by_name(host: str, credential: Any, named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        Endpoint.from_credential(host, credential)


def test_an_endpoint_checks_its_addresses_and_sends_no_token_in_clear_to_azure() -> None:
    host, other = "contoso.servicebus.windows.net", {"subscription_id": "s", "resource_group": "g", "credential": KEY}
    with pytest.raises(ConfigurationError, match=r"which sends tokens without TLS: not allowed for 'CONTOSO\."):
        Endpoint.from_credential("CONTOSO.ServiceBus.windows.net", object(), emulator=True)
    named: list[dict[str, Any]] = [{"administration": host}, {"endpoint_address": f"sb://{host}:5671"}]
    for elsewhere in named:
        with pytest.raises(ConfigurationError, match="which sends tokens without TLS"):
            Endpoint.from_credential("127.0.0.1", object(), namespace="a", emulator=True, **elsewhere)
    with pytest.raises(ConfigurationError, match="which sends tokens without TLS"):
        Endpoint.from_connection_string(f"{TEXT};UseDevelopmentEmulator=true")
    local = Endpoint.from_credential("127.0.0.1:5672", object(), namespace="contoso", emulator=True)
    assert (local.emulator, local.namespace, local.administration) == (True, "contoso", "127.0.0.1:5672")
    with pytest.raises(ConfigurationError, match="endpoint_address is not allowed"):
        Endpoint.from_credential(host, object(), endpoint_address="https://gateway.example")
    assert Endpoint.from_credential(host, object(), endpoint_address="sb://gateway.example:443").arm is None
    with pytest.raises(ConfigurationError, match="management_endpoint is not allowed"):
        ArmCoordinates(**other, management_endpoint="sb://x")
    assert ArmCoordinates(**other, management_endpoint="https://management.azure.com").subscription_id == "s"
    one, two = (Endpoint.from_credential(name, object()) for name in ("a.example.net", "b.example.net"))
    check_distinct(one, two)
    with pytest.raises(ConfigurationError, match=r"primary and secondary are both 'a\.example\.net': they must be two"):
        check_distinct(one, Endpoint.from_credential("A.Example.net", object(), namespace="b"))


@pytest.mark.parametrize("value", ["text", Secret("text")])
def test_a_secret_option_is_never_shown(value: Any) -> None:
    assert _secret("field", value) == Secret("text")
    for wrong in (5, ""):
        with pytest.raises(ConfigurationError, match=r"field is a (int|str): it must be a text that is not empty"):
            _secret("field", wrong)


def test_arm_coordinates_hide_their_credential() -> None:
    assert KEY not in repr(ArmCoordinates(subscription_id="s", resource_group="g", credential=KEY))


def test_endpoint_representations_hide_secrets() -> None:
    endpoint = Endpoint.from_connection_string(TEXT)
    secret = endpoint.connection_string
    shown = [
        *(repr(endpoint), str(endpoint), f"{endpoint}", f"{endpoint!r}"),
        *(repr(secret), str(secret), f"{secret}", "%s" % secret),  # noqa: UP031 - how logging formats
        *(repr(asdict(endpoint)), repr([endpoint]), repr(copy.deepcopy(endpoint)), repr(ConfigurationError(endpoint))),
    ]
    assert not [text for text in shown if KEY in text]
    assert "contoso" in repr(endpoint)
    assert KEY not in repr(Endpoint.from_credential("contoso.servicebus.windows.net", KEY))


def test_pickled_endpoint_keeps_its_secret() -> None:
    endpoint = Endpoint.from_connection_string(TEXT)
    travelled = pickle.loads(pickle.dumps(endpoint))  # noqa: S301 - our own bytes
    assert travelled == endpoint
    assert travelled.connection_string.reveal() == TEXT


def test_secrets_compare_by_text() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b") != Secret("a")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1


PARTS = st.sampled_from(
    [
        "Endpoint=sb://contoso.servicebus.windows.net/",
        "Endpoint = sb://contoso.servicebus.windows.net",
        "endpoint=sb://c o",
        "SharedAccessKeyName=a",
        " SharedAccessKey = b= ",
        "sharedaccesskey=",
        "SharedAccessSignature=SharedAccessSignature sr=x&sig=y&se=soon",
        "UseDevelopmentEmulator=TRUE",
        "UseDevelopmentEmulator=",
        "Other=5",
        "Other",
        "=",
        "",
    ]
)


GOOD = st.sampled_from(
    [
        "",
        TEXT,
        TEXT.replace("servicebus", "example"),
        "Endpoint=sb://contoso.servicebus.windows.net;SharedAccessSignature=x",
    ]
)


@given(good=GOOD, parts=st.lists(PARTS, max_size=5))
def test_sdk_accepts_every_accepted_connection_string(good: str, parts: list[str]) -> None:
    try:
        endpoint = Endpoint.from_connection_string(";".join([good, *parts]))
    except ConfigurationError:
        return
    assert endpoint.connection_string is not None
    client = ServiceBusClient.from_connection_string(endpoint.connection_string.reveal())
    assert client.fully_qualified_namespace == endpoint.host
    assert client._config.use_tls is not endpoint.emulator
