"""Shared access signatures: ``SharedAccessSignature sr=<resource>&sig=<signature>&se=<expiry>&skn=<rule>``.

As in Microsoft's "Service Bus access control with Shared Access Signatures": the signature is HMAC-SHA256, in
Base64, of the URL-encoded resource, a line feed and the expiry, with the key's characters in UTF-8. What is
signed is taken as it stands in the token, since clients differ in how they encode.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote_plus, unquote, unquote_plus

from servicebus_emulator.security.refusals import malformed

__all__ = ["SCHEME", "SharedAccessSignature", "sign"]

SCHEME: Final = "SharedAccessSignature"

_FIELDS: Final = ("sr", "sig", "se", "skn")
_EXPIRY: Final = re.compile(r"[0-9]{1,12}")
_LONGEST: Final = 8192
_SHAPE: Final = f"allowed: '{SCHEME} sr=...&sig=...&se=...&skn=...'"


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAccessSignature:
    """A token, read but not checked.

    :ivar resource: the URI that it is for.
    :ivar rule: the name of the rule with whose key it was made.
    :ivar expires: the second since 1970 from which on it is worth nothing.
    """

    resource: str
    rule: str
    expires: int
    _signed: bytes = field(repr=False)
    _signature: bytes = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> SharedAccessSignature:
        """Read a token.

        :raises Unauthorized: when it is none; nothing of it is repeated.
        """
        scheme, _, rest = text.strip().partition(" ")
        if scheme.casefold() != SCHEME.casefold() or len(text) > _LONGEST or not text.isascii():
            raise malformed(f"is no shared access signature; {_SHAPE}")
        pairs = [part.partition("=")[::2] for part in rest.strip().split("&")]
        fields = dict(pairs)
        missing = [name for name in _FIELDS if fields.get(name, "") == ""]
        if len(missing) > 0 or len(fields) != len(pairs):
            fault = f"{', '.join(missing)} missing" if len(missing) > 0 else "a field given twice"
            raise malformed(f"has {fault}; {_SHAPE}")
        if _EXPIRY.fullmatch(fields["se"]) is None:
            raise malformed("has an expiry se that is no time; allowed: whole seconds since 1970-01-01 UTC")
        return cls(
            resource=unquote_plus(fields["sr"]),
            rule=unquote_plus(fields["skn"]),
            expires=int(fields["se"]),
            _signed=f"{fields['sr']}\n{fields['se']}".encode(),
            _signature=unquote(fields["sig"]).encode(),
        )

    def is_signed_with(self, keys: Iterable[str]) -> bool:
        """Return whether one of the keys made the token; takes the same time whichever did."""
        matches = [hmac.compare_digest(_hmac(self._signed, key=key), self._signature) for key in keys]
        return any(matches)


def sign(resource: str, *, rule: str, key: str, expires: int) -> str:
    """Make a token.

    :param resource: the URI of an entity or a namespace.
    :param rule: the name of the rule to which the key belongs.
    :param expires: the second since 1970 from which on it is worth nothing.
    """
    encoded = quote_plus(resource)
    signature = quote_plus(_hmac(f"{encoded}\n{expires}".encode(), key=key))
    return f"{SCHEME} sr={encoded}&sig={signature}&se={expires}&skn={quote_plus(rule)}"


def _hmac(signed: bytes, *, key: str) -> bytes:
    return b64encode(hmac.digest(key.encode(), signed, "sha256"))
