"""What is learned, given or has the shape of a secret is masked wherever it stands."""

from __future__ import annotations

import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from hashlib import sha512

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servicebus_pair.core.model import redaction
from servicebus_pair.core.model.redaction import learn_secrets, scrub, secret_kind

KEY = "k" * 43 + "="
CLIENT_SECRET = "abc8Q~" + "x" * 34
# 32 bytes in Base64.
UNPADDED = "q7ZrQ8xK2/pR9vT+3LmZ7sBw1JhN5yGd6FcU0aEiX5k"
TOKEN = "eyJ" + "h" * 8 + "." + "p" * 8 + ".s"


@pytest.fixture(autouse=True)
def nothing_learned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redaction, "_learned", {})


@pytest.mark.parametrize(
    ("text", "kind", "masked"),
    [
        ("Endpoint=sb://x/;SharedAccessKey=secret;x", "a connection string", "Endpoint=sb://x/;SharedAccessKey=***;x"),
        ("sharedaccesskey %3D secret&x", "a connection string", "sharedaccesskey %3D ***&x"),
        ("clientsecret=s", "a connection string", "clientsecret=***"),
        (f"the key {KEY} is", "a key", "the key *** is"),
        (f"{KEY[:-1]}%3D.", "a key", "***."),
        (f"x{KEY}", None, f"x{KEY}"),
        (f"key={'%2b' * 2}{'k' * 40}%2F%3D&x=1", "a key", "key=***&x=1"),
        (
            '{"SharedAccessKey": "short own key", "x": "y"}',
            "a connection string",
            '{"SharedAccessKey": "***", "x": "y"}',
        ),
        ("{'client_secret':'s'}", "a connection string", "{'client_secret':'***'}"),
        (r'"{\"AccountKey\": \"own key\", \"x\": 1}"', "a connection string", r'"{\"AccountKey\": \"***\", \"x\": 1}"'),
        (r'{"sharedAccessKey": "a \"b\" c"}', "a connection string", '{"sharedAccessKey": "***"}'),
        (
            '{"conn_type": "servicebus_namespace", "password": "own"}',
            "a connection string",
            '{"conn_type": "servicebus_namespace", "password": "***"}',
        ),
        ('{"SharedAccessKeyName": "Root"}', None, '{"SharedAccessKeyName": "Root"}'),
        ("proxy http://user:pass:w@rd@host:80/x", "a password", "proxy http://user:***@host:80/x"),
        ("redis://:password@host", "a password", "redis://:***@host"),
        ("http://user@host:80/?to=a:b@c", None, "http://user@host:80/?to=a:b@c"),
        ('["sb://host:5671", "ops@x"]', None, '["sb://host:5671", "ops@x"]'),
        (f"{KEY}=", None, f"{KEY}="),
        (f"is {CLIENT_SECRET}", "a client secret", "is ***"),
        (f"Bearer {TOKEN}", "a token", "Bearer ***"),
        ("s3://bucket/x?user=u&Password=p%20q&x=1", "a password", "s3://bucket/x?user=u&Password=***&x=1"),
        ("s3://bucket/x?user=token", None, "s3://bucket/x?user=token"),
        (f"the key {UNPADDED}, is", "a key", "the key ***, is"),
        (f"https://host/?KEY={UNPADDED}&x=1", "a key", "https://host/?KEY=***&x=1"),
        (f"file:/tmp/{UNPADDED}", "a key", "file:/tmp/***"),
        (UNPADDED.replace("+", "%2B").replace("/", "%2f"), "a key", "***"),
        (f"{UNPADDED * 2}", "a key", "***"),
        (f"{UNPADDED * 2}==", "a key", "***=="),
        (f"{UNPADDED}5", None, f"{UNPADDED}5"),
        (UNPADDED[1:], None, UNPADDED[1:]),
        (f"{UNPADDED * 3}", None, f"{UNPADDED * 3}"),
        (f"primary_primary_{UNPADDED}", "a key", "primary_primary_***"),
        (f"my-key-{UNPADDED}= is", "a key", "my-key-***= is"),
        (f"x_{UNPADDED * 2}==", "a key", "x_***=="),
        (f"x_{TOKEN}", "a token", "x_***"),
        *(
            (name, None, name)
            for name in (
                "/opt/airflow/Ledgers/2026-11-23/Run-0001/ab",
                "runs/0D2F0B6C-7E51-4C1A-9A62-5C2D7C6F1E0ab/",
                "ContosoEuropeFlightsDepartureDelaysQueue-V2",
                "2c26b46b68ffc68ff99b453c1d30413413422d70648",
                "/etc/ssl/certs/D-TRUST_Root_Class_3_CA_2_EV_2009.pem",
                "rg-AdventureWorks-Spoke-LHG-APP-Contoso-001",
                "Prefixed8/Transfers/PullLetrigger/OtherAll1",
                "org/apache/zookeeper/server/NodeHashMapImpl.class",
                "Needs-Backlogs-Share-Png-Log-Game-Without-01-Boarding-Wire-Known-Days-Growing-Hundreds",
            )
        ),
        ("no secret", None, "no secret"),
    ],
)
def test_a_secret_is_known_by_its_shape(text: str, kind: str | None, masked: str) -> None:
    assert (secret_kind(text), scrub(text)) == (kind, masked)
    assert secret_kind([text]) == kind


@pytest.mark.parametrize(
    "unit", ["eyJaaaaa-", "_eyJaaaaa", "sig=", "://a:b", "U2hhcmVk", "%41", 'sig":"', "a_", "aG_", "ab12+/"]
)
def test_a_long_text_is_searched_in_linear_time(unit: str) -> None:
    started = time.process_time()
    scrub(unit * 30_000)
    # Half a minute for beginnings of tokens, when each was followed to the end of the text.
    assert time.process_time() - started < 4


@pytest.mark.parametrize("encode", [b64encode, urlsafe_b64encode])
@pytest.mark.parametrize("size", [32, 64])
def test_keys_are_known_alone_and_at_the_end_of_a_name_with_and_without_padding(
    encode: Callable[[bytes], bytes], size: int
) -> None:
    keys = [encode(sha512(b"%d" % number).digest()[:size]).decode() for number in range(200)]
    shown = [
        text
        for key in keys
        for before in ("", "x_", "primary_primary_", "my-key-", "file:/a/")
        for text in (before + key, before + key.rstrip("="))
        if scrub(text).rstrip("=") != f"{before}***"
    ]
    assert shown == []


def test_secrets_of_eight_characters_and_more_are_learned_and_shorter_ones_only_given() -> None:
    learn_secrets(["7 chars", "8 chars."])
    assert scrub("7 chars, 8 chars.") == "7 chars, ***"
    assert scrub("7 chars, 8 chars.", ["7 chars", ""]) == "***, ***"
    assert (secret_kind("is 8 chars."), secret_kind("7 chars")) == ("a secret of a connection", None)


@pytest.mark.parametrize(
    "encoded", ["a%2Bb%2Fc%3D%3D", "a%2bb%2fc%3d%3d", "a%2Bb/c%3D%3D", "a+b%2Fc==", "%61%2Bb%2Fc%3D%3D"]
)
def test_a_learned_secret_is_masked_however_a_url_encodes_it(encoded: str) -> None:
    learn_secrets(["my a+b/c=="])
    assert scrub(f"?a=%20{encoded}%20&b=5%", ["a+b/c=="]) == "?a=%20***%20&b=5%"
    assert scrub(f"my%20{encoded}%zz") == "***%zz"
    assert secret_kind(f"my%20{encoded}") == "a secret of a connection"


def test_the_secrets_learned_longest_ago_are_forgotten_beyond_two_thousand() -> None:
    learn_secrets(f"secret {number:04}" for number in range(2000))
    learn_secrets(["secret 0000", "another secret"])
    assert scrub("secret 0000, secret 0001, secret 0002") == "***, secret 0001, ***"


@given(
    parts=st.lists(st.sampled_from(["canary-1", "canary-2", "1canary", " "]), max_size=8),
    secrets=st.lists(st.sampled_from(["canary-1", "canary-2", "y-1canar", "1c"]), max_size=4),
)
def test_exactly_the_characters_of_secrets_are_masked_also_where_they_overlap(
    parts: list[str], secrets: list[str]
) -> None:
    text = "".join(parts)
    covered = [False] * len(text)
    for secret in secrets:
        for begin in range(len(text)):
            if text.startswith(secret, begin):
                covered[begin : begin + len(secret)] = [True] * len(secret)
    masked = scrub(text, secrets)
    assert masked.replace("***", "") == "".join(each for each, hidden in zip(text, covered, strict=True) if not hidden)
    assert ("***" in masked) is any(covered)
