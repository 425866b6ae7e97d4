"""Shared access signatures."""

from __future__ import annotations

import pytest

from servicebus_emulator.engine.model.errors import Unauthorized
from servicebus_emulator.security.sas import SharedAccessSignature, sign

CANARY = "c4n4ry+/="


def test_a_token_is_verified_over_its_own_encoding():
    text = sign("sb://Contoso/a b/c", rule="app", key=CANARY, expires=1_800_000_000)
    token = SharedAccessSignature.parse(text)
    assert (token.resource, token.policy, token.expires) == ("sb://Contoso/a b/c", "app", 1_800_000_000)
    assert token.is_signed_with(["other", CANARY])
    assert not token.is_signed_with(["other", ""])
    assert not token.is_signed_with([])
    # Others write small letters where Python writes capitals, and sign what they write.
    other = text.replace("%3A", "%3a").replace("%2F", "%2f")
    assert not SharedAccessSignature.parse(other).is_signed_with([CANARY])
    assert CANARY not in text + repr(token)


def test_a_signature_by_openssl_is_accepted():
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
def test_a_malformed_token_is_refused_without_repeating_it(text: str):
    with pytest.raises(Unauthorized, match="MalformedToken") as refused:
        SharedAccessSignature.parse(text)
    assert CANARY not in str(refused.value)
