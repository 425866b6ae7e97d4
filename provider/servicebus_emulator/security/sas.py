"""Shared access signatures: ``SharedAccessSignature sr=<resource>&sig=<signature>&se=<expiry>&skn=<policy>``.

See Microsoft's "Service Bus access control with Shared Access Signatures": the signature is the Base64 HMAC-SHA256 of
the URL-encoded resource, a line feed and the expiry; the key is encoded in UTF-8. The signature is verified over the
fields as they appear in the token, because clients differ in how they URL-encode.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_plus, unquote, unquote_plus

from servicebus_emulator.security.token_errors import malformed

SCHEME: Final = "SharedAccessSignature"

_FIELDS: Final = ("sr", "sig", "se", "skn")
_EXPIRY: Final = re.compile(r"[0-9]{1,12}")
_MAX_LENGTH: Final = 8192
_FORMAT: Final = f"allowed: '{SCHEME} sr=...&sig=...&se=...&skn=...'"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAccessSignature:
    """A parsed token. Its signature and expiry are not checked yet.

    :ivar resource: the URI of the resource it is for.
    :ivar policy: the name of the policy whose key signed it.
    :ivar expires: its expiry in seconds since 1970.
    """

    resource: str
    policy: str
    expires: int
    _signed: bytes = field(repr=False)
    _signature: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> SharedAccessSignature:
        """Parse a token.

        :raises Unauthorized: when it is malformed. The message does not contain any part of it.
        """
        scheme, _, rest = text.strip().partition(" ")
        if scheme.casefold() != SCHEME.casefold() or len(text) > _MAX_LENGTH or not text.isascii():
            raise malformed(f"is not a shared access signature; {_FORMAT}")
        pairs = [part.partition("=")[::2] for part in rest.strip().split("&")]
        fields = dict(pairs)
        missing = [name for name in _FIELDS if fields.get(name, "") == ""]
        if len(missing) > 0 or len(fields) != len(pairs):
            problem = f"{', '.join(missing)} missing" if len(missing) > 0 else "a field given twice"
            raise malformed(f"has {problem}; {_FORMAT}")
        if _EXPIRY.fullmatch(fields["se"]) is None:
            raise malformed("has an expiry se that is not a time; allowed: whole seconds since 1970-01-01 UTC")
        return cls(
            resource=unquote_plus(fields["sr"]),
            policy=unquote_plus(fields["skn"]),
            expires=int(fields["se"]),
            _signed=f"{fields['sr']}\n{fields['se']}".encode(),
            _signature=unquote(fields["sig"]).encode(),
        )

    def is_signed_with(self, keys: Iterable[str]) -> bool:
        """Return whether one of the keys signed the token. All keys are tried, to run in constant time."""
        matches = [hmac.compare_digest(_hmac(self._signed, key=key), self._signature) for key in keys]
        return any(matches)


def sign(resource: str, *, rule: str, key: str, expires: int) -> str:
    """Return a signed token.

    :param resource: the URI of an entity or a namespace.
    :param rule: the name of the policy that the key belongs to.
    :param expires: the expiry in seconds since 1970.
    """
    encoded = quote_plus(resource)
    signature = quote_plus(_hmac(f"{encoded}\n{expires}".encode(), key=key))
    return f"{SCHEME} sr={encoded}&sig={signature}&se={expires}&skn={quote_plus(rule)}"


def _hmac(signed: bytes, *, key: str) -> bytes:
    return b64encode(hmac.digest(key.encode(), signed, "sha256"))
