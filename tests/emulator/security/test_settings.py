"""Security settings: hosts, keys and open access."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from servicebus_emulator import Emulator
from servicebus_emulator.config import ConfigError, parse_config
from servicebus_emulator.engine.model.access_policy import DEFAULT_KEY, ROOT_POLICY
from servicebus_emulator.engine.namespace.shared_access_policies import PolicyKey
from servicebus_emulator.security.settings import is_loopback
from tests.emulator.support.authorizers import CANARY, config_with_rules


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8", "::ffff:127.0.0.1"])
def test_a_loopback_host_may_use_the_default_key(host: str):
    assert is_loopback(host)
    Emulator(["contoso"], host=host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "contoso.example", ""])  # noqa: S104 - it is refused
def test_another_host_requires_a_key_or_open_access(host: str):
    with pytest.raises(ValueError, match=r"host is .*the key is the well-known one; allowed: a loopback address"):
        Emulator(["contoso"], host=host)
    with pytest.raises(ValueError, match="well-known"):
        Emulator(["contoso"], host=host, key=DEFAULT_KEY)
    Emulator(["contoso"], host=host, key=CANARY)
    Emulator(["contoso"], host=host, open=True)


async def test_open_access_from_the_network_is_logged(caplog: pytest.LogCaptureFixture):
    async with Emulator(["contoso"], open=True):
        assert "open to" not in caplog.text
    async with Emulator(["contoso"], host="0.0.0.0", open=True):  # noqa: S104 - that is the point
        assert "namespace contoso: open to every client that can reach 0.0.0.0" in caplog.text


async def test_a_given_key_is_in_the_connection_string_but_not_in_repr():
    async with Emulator(["contoso"], key=CANARY) as emulator:
        hosted = emulator["contoso"]
        assert hosted.namespace.access_policies.root.keys == (CANARY, CANARY)
        assert f"SharedAccessKey={CANARY};" in hosted.connection_string
        assert CANARY not in repr(emulator) + repr(hosted) + repr(emulator._settings.security)


async def test_configured_keys_are_used_and_missing_ones_generated():
    namespace = [
        {"KeyName": ROOT_POLICY, "Rights": ["Manage"], "PrimaryKey": "one", "SecondaryKey": "two"},
        {"KeyName": "app", "Rights": ["Send", "Listen"]},
    ]
    queue = [{"KeyName": "reader", "Rights": ["Listen"], "PrimaryKey": "three"}]
    configs = parse_config(config_with_rules(namespace=namespace, queue=queue))
    async with Emulator(["contoso"], host="127.0.0.1", configs=configs) as emulator:
        rules = emulator["contoso"].namespace.access_policies
        assert rules.root.keys == ("one", "two")
        app, reader = rules.get("app"), rules.get("reader", path="flights")
        assert (sorted(app.rights), len(app.primary_key)) == (["Listen", "Send"], 44)
        assert (sorted(reader.rights), reader.primary_key, len(reader.secondary_key)) == (["Listen"], "three", 44)
    async with Emulator(["contoso"], configs=configs, key="given") as emulator:
        assert emulator["contoso"].namespace.access_policies.root.keys == ("given", "given")


async def test_a_regenerated_key_survives_a_restart_with_another_key(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async with Emulator(["contoso"], data=tmp_path, key="old") as emulator:
        renewed = emulator["contoso"].namespace.access_policies.regenerate(ROOT_POLICY, key=PolicyKey.PRIMARY)
    async with Emulator(["contoso"], data=tmp_path, key="new") as emulator:
        assert emulator["contoso"].namespace.access_policies.root == renewed
    assert "the keys were regenerated before; the given ones are ignored" in caplog.text


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"Rights": ["Send"]}, r"AuthorizationRules\[0\].KeyName is 'missing'"),
        ({"KeyName": "a"}, r"AuthorizationRules\[0\].Rights is 'missing'"),
        ({"KeyName": "a", "Rights": []}, r"AuthorizationRules\[0\].Rights is 'none'"),
        ({"KeyName": "a", "Rights": ["Read"]}, r"Rights\[0\] is 'Read'; allowed: Manage, Send, Listen"),
        ({"KeyName": "a b", "Rights": ["Send"]}, r"KeyName is 'of 3 characters'; allowed: 1 to 256"),
        ({"KeyName": "a", "Rights": ["Send"], "PrimaryKey": ""}, r"PrimaryKey is 'of 0 characters'"),
        ({"KeyName": "a", "Rights": ["Send"], "PrimaryKey": [CANARY]}, r"PrimaryKey is 'list'; allowed: a string"),
        ({"KeyName": "a", "Rights": ["Send"], "PrimaryKey": CANARY * 50}, r"PrimaryKey is 'of 450 characters'"),
        ({"KeyName": "a", "Rights": ["Send"], "PrimarKey": CANARY}, r"allowed: only KeyName, Rights, PrimaryKey"),
        ({"Properties": {"PrimaryKey": CANARY}}, "allowed: only KeyName, Rights, PrimaryKey"),
    ],
)
@pytest.mark.parametrize("place", ["namespace", "queue"])
def test_an_invalid_configured_rule_is_reported_without_its_key(rule: Any, message: str, place: str):
    with pytest.raises(ConfigError, match=message) as refused:
        parse_config(config_with_rules(**{place: [rule]}))
    assert CANARY not in str(refused.value)
    assert CANARY not in repr(refused.value)
