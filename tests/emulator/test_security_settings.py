"""Keys, clients and openness, as whoever starts the emulator decides; and nothing secret in what it says."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError
from azure.servicebus.management import AuthorizationRule, ServiceBusAdministrationClient
from proton import Message
from proton.utils import BlockingConnection

from servicebus_emulator import Emulator, EmulatorProcess
from servicebus_emulator.config import ConfigError, parse_config
from servicebus_emulator.engine.access import Key
from servicebus_emulator.engine.access_rules import DEFAULT_KEY, ROOT_RULE
from servicebus_emulator.engine.errors import Unauthorized
from servicebus_emulator.security.bearer import Client
from servicebus_emulator.security.resources import entity_of, is_within, resource_path, resources_over
from servicebus_emulator.security.sas import SharedAccessSignature, sign
from servicebus_emulator.security.settings import KEY_VARIABLE, SECRET_VARIABLE, is_loopback
from tests.emulator.transport import BlockingPlainTransport

CANARY = "c4n4ry+/="


def config(*, namespace: Any = None, queue: Any = None) -> str:
    described = {
        "Name": "contoso",
        "Queues": [{"Name": "flights", **({} if queue is None else {"AuthorizationRules": queue})}],
        **({} if namespace is None else {"AuthorizationRules": namespace}),
    }
    return json.dumps({"UserConfig": {"Namespaces": [described]}})


# Where it listens


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.8.8.8", "::ffff:127.0.0.1"])
def test_an_address_of_this_machine_alone_may_have_the_well_known_key(host: str):
    assert is_loopback(host)
    Emulator(["contoso"], host=host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "contoso.example", ""])  # noqa: S104 - it is refused
def test_the_network_is_not_let_in_by_the_well_known_key(host: str):
    with pytest.raises(ValueError, match=r"host is .*the key is the well-known one; allowed: a loopback address"):
        Emulator(["contoso"], host=host)
    with pytest.raises(ValueError, match="well-known"):
        Emulator(["contoso"], host=host, key=DEFAULT_KEY)
    Emulator(["contoso"], host=host, key=CANARY)
    Emulator(["contoso"], host=host, open=True)


async def test_openness_to_the_network_is_said(caplog: pytest.LogCaptureFixture):
    async with Emulator(["contoso"], open=True):
        assert "open" not in caplog.text
    async with Emulator(["contoso"], host="0.0.0.0", open=True):  # noqa: S104 - that is the point
        assert "namespace contoso: open: whoever reaches 0.0.0.0 is let in, unchecked" in caplog.text


# Keys


async def test_a_key_of_ones_own_is_in_the_connection_string_and_opens():
    async with Emulator(["contoso"], key=CANARY) as emulator:
        hosted = emulator["contoso"]
        assert hosted.namespace.access_rules.root.keys == (CANARY, CANARY)
        assert f"SharedAccessKey={CANARY};" in hosted.connection_string
        assert CANARY not in repr(emulator) + repr(hosted) + repr(emulator._security)


async def test_keys_of_the_configuration_are_used_and_those_left_out_are_made():
    namespace = [
        {"KeyName": ROOT_RULE, "Rights": ["Manage"], "PrimaryKey": "one", "SecondaryKey": "two"},
        {"KeyName": "app", "Rights": ["Send", "Listen"]},
    ]
    queue = [{"KeyName": "reader", "Rights": ["Listen"], "PrimaryKey": "three"}]
    configs = parse_config(config(namespace=namespace, queue=queue))
    async with Emulator(["contoso"], host="127.0.0.1", configs=configs) as emulator:
        rules = emulator["contoso"].namespace.access_rules
        assert rules.root.keys == ("one", "two")
        app, reader = rules.get("app"), rules.get("reader", path="flights")
        assert (sorted(app.rights), len(app.primary_key)) == (["Listen", "Send"], 44)
        assert (sorted(reader.rights), reader.primary_key, len(reader.secondary_key)) == (["Listen"], "three", 44)
    async with Emulator(["contoso"], configs=configs, key="given") as emulator:
        assert emulator["contoso"].namespace.access_rules.root.keys == ("given", "given")


async def test_a_regenerated_key_outlives_a_restart_with_another(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    async with Emulator(["contoso"], data=tmp_path, key="old") as emulator:
        renewed = emulator["contoso"].namespace.access_rules.regenerate(ROOT_RULE, key=Key.PRIMARY)
    async with Emulator(["contoso"], data=tmp_path, key="new") as emulator:
        assert emulator["contoso"].namespace.access_rules.root == renewed
    assert "the keys on disk, regenerated before, are used instead of those given" in caplog.text


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
def test_a_bad_rule_of_the_configuration_is_named_and_its_key_is_not(rule: Any, message: str, place: str):
    with pytest.raises(ConfigError, match=message) as refused:
        parse_config(config(**{place: [rule]}))
    assert CANARY not in str(refused.value)
    assert CANARY not in repr(refused.value)


# The command line


def run(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "servicebus_emulator", *arguments]
    environment = {**os.environ, **variables}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--host", "0.0.0.0"], "or a key of your own (SERVICEBUS_EMULATOR_KEY or --key-file), or --open"),  # noqa: S104
        (["--key-file", "nowhere"], "--key-file cannot be read"),
        (["--client", "app"], "--client 'app' has no secret"),
        (["--client", "app:Reader"], "--client 'app' has the role 'Reader'; allowed: Owner, Sender, Receiver"),
    ],
)
def test_bad_arguments_are_named(arguments: list[str], message: str):
    ended = run(*arguments)
    assert ended.returncode == 2
    assert message in ended.stderr


def test_a_key_that_is_none_is_refused(tmp_path: Path):
    file = tmp_path / "key"
    file.write_text("\n")
    for ended in (run("--key-file", str(file)), run(**{KEY_VARIABLE: ""}), run(**{KEY_VARIABLE: "two\nlines"})):
        assert "PrimaryKey is 'of" in ended.stderr
        assert "allowed: 1 to 256 printable characters" in ended.stderr


# Tokens, taken apart


def test_a_token_is_read_as_it_stands():
    text = sign("sb://Contoso/a b/c", rule="app", key=CANARY, expires=1_800_000_000)
    token = SharedAccessSignature.parse(text)
    assert (token.resource, token.rule, token.expires) == ("sb://Contoso/a b/c", "app", 1_800_000_000)
    assert token.is_signed_with(["other", CANARY])
    assert not token.is_signed_with(["other", ""])
    assert not token.is_signed_with([])
    # Others write small letters where Python writes capitals, and sign what they write.
    other = text.replace("%3A", "%3a").replace("%2F", "%2f")
    assert not SharedAccessSignature.parse(other).is_signed_with([CANARY])
    assert CANARY not in text + repr(token)


def test_a_signature_made_by_another_program_is_accepted():
    """The signature is of ``openssl dgst -sha256 -hmac key -binary | base64``, over the encoded resource and time."""
    text = (
        "SharedAccessSignature sr=sb%3a%2f%2fcontoso%2fq&sig=rJ%2fqAN3IoUeEna2osAXJsj2syEjqYBUrfFJ7axn5y5M%3d"
        "&se=1800000000&skn=app"
    )
    assert SharedAccessSignature.parse(text).is_signed_with(["key"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SharedAccessSignature",
        CANARY,
        f"SharedAccessSignature {CANARY}",
        "x" * 9000,
        "SharedAccessSignature sr=\udcff&sig=\udcff&se=1&skn=\udcff",
    ],
)
def test_what_is_no_token_is_refused_and_not_repeated(text: str):
    with pytest.raises(Unauthorized, match="MalformedToken") as refused:
        SharedAccessSignature.parse(text)
    assert CANARY not in str(refused.value)


def test_resources_lie_within_others_segment_by_segment():
    assert resource_path("sb://h:1/A%20b/") == "a b"
    assert resource_path("https://[::1]:1/a?b#c") == "a"
    assert resource_path("sb://[") == resource_path("") == resource_path("://") == ""
    assert is_within("a/b", resource="a")
    assert not is_within("ab", resource="a")
    assert not is_within("a", resource="a/b")
    assert entity_of("t/subscriptions/s/rules/r") == entity_of("t/$management") == entity_of("t/subscriptions") == "t"
    assert entity_of("a/b/$deadletterqueue/$management") == "a/b"
    assert list(resources_over("a/b/c")) == ["a/b/c", "a/b", "a", ""]


# Nothing secret in what it says


async def test_neither_keys_nor_tokens_nor_secrets_are_in_anything_that_it_says(tmp_path: Path):
    """SPEC.md: secrets never reach logs, answers and errors."""
    file = tmp_path / "config.json"
    rules = [{"KeyName": "app", "Rights": ["Listen"], "PrimaryKey": f"{CANARY}app", "SecondaryKey": f"{CANARY}app"}]
    file.write_text(config(namespace=rules, queue=rules))
    command = [sys.executable, "-m", "servicebus_emulator", "--config", str(file), "--log-level", "DEBUG"]
    command += ["--amqp-port", "0", "--admin-port", "0", "--client", "tool", "--data", str(tmp_path / "data")]
    environment = {**os.environ, KEY_VARIABLE: f"{CANARY}root", SECRET_VARIABLE: f"{CANARY}client"}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    ready = (await process.stdout.readline()).decode()
    amqp, admin = (part.partition("=")[2].strip() for part in ready.split()[2:4])
    try:
        said = [ready, *await _over_amqp(amqp), *await _over_http(admin)]
    finally:
        process.terminate()
        output, log = await process.communicate()
    said += [output.decode(), log.decode()]
    assert "token refused" in said[-1]
    assert "a client was refused" in said[-1]
    assert [text for text in said if "c4n4ry" in text] == []


async def _over_amqp(host: str) -> list[str]:
    said: list[str] = []
    for name, key in (
        (ROOT_RULE, f"{CANARY}root"),
        ("app", f"{CANARY}app"),
        (ROOT_RULE, f"{CANARY}wrong"),
        (CANARY, f"{CANARY}root"),
    ):
        credential = AzureNamedKeyCredential(name, key)
        async with ServiceBusClient(host, credential, retry_total=0, use_tls=False) as client:
            try:
                async with client.get_queue_sender("flights") as sender:
                    await sender.send_messages(ServiceBusMessage("x"))
            except ServiceBusError as error:
                said += [str(error), repr(error)]
    assert len(said) == 6
    return said


async def _over_http(host: str) -> list[str]:
    later = int(time.time()) + 60
    good = sign("https://contoso/", rule=ROOT_RULE, key=f"{CANARY}root", expires=later)
    bad = sign("https://contoso/", rule=CANARY, key=f"{CANARY}wrong", expires=later)
    form = {"grant_type": "client_credentials", "client_id": "tool", "scope": "https://servicebus.azure.net/.default"}
    said: list[str] = []
    async with ClientSession(f"http://{host}") as http:
        for path in ("/health", "/$faults", "/$namespaceinfo?api-version=2021-05"):
            for header in (good, bad, f"Bearer {CANARY}", CANARY):
                async with http.get(path, headers={"Authorization": header}) as response:
                    said += [await response.text(), str(response.headers)]
        for secret in ("client", "wrong"):
            url = "/contoso.example/oauth2/v2.0/token"
            async with http.post(url, data={**form, "client_secret": f"{CANARY}{secret}"}) as response:
                said.append(await response.text())
    return said


def test_a_process_of_ones_own_is_given_its_key_in_secret(tmp_path: Path):
    with EmulatorProcess(["contoso"], key=CANARY, data=tmp_path) as process:
        served = process["contoso"]
        assert f"SharedAccessKey={CANARY};" in served.connection_string
        assert CANARY not in repr(served) + repr(process)
        assert CANARY not in Path(f"/proc/{process.pid}/cmdline").read_text(encoding="utf-8")


def test_clients_are_told_apart_by_their_ids():
    with pytest.raises(ValueError, match="each id once"):
        Emulator(["contoso"], clients=[Client(id="a", secret="x"), Client(id="a", secret="y")])


def test_a_rule_that_was_made_outlives_the_end_of_its_process(tmp_path: Path):
    given = AuthorizationRule(
        type="SharedAccessAuthorizationRule",
        claim_type="SharedAccessKey",
        claim_value="None",
        key_name="app",
        rights=["Manage", "Send", "Listen"],
        primary_key=CANARY,
    )
    with EmulatorProcess(["contoso"], data=tmp_path) as process:
        with _administration(process["contoso"].admin_connection_string) as client:
            client.create_queue("made", authorization_rules=[given])
        process.kill()
        process.start()
        later = int(time.time()) + 60
        token = sign("https://contoso/made", rule="app", key=CANARY, expires=later)
        url = f"http://127.0.0.1:{process['contoso'].admin_port}/made?api-version=2021-05"
        request = urllib.request.Request(url, headers={"Authorization": token})
        with urllib.request.urlopen(request, timeout=5) as response:  # noqa: S310 - the same
            assert CANARY in response.read().decode()


def _administration(text: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(text, transport=BlockingPlainTransport())


def test_an_open_process_asks_nobody_for_a_token(tmp_path: Path):
    file = tmp_path / "config.json"
    file.write_text(config())
    with EmulatorProcess(["contoso"], config=file, open=True) as process:
        connection = BlockingConnection(
            f"amqp://127.0.0.1:{process['contoso'].amqp_port}", timeout=5, allowed_mechs="ANONYMOUS"
        )
        connection.create_sender("flights").send(Message(body="x"))
        connection.close()
