"""Secrets in every form in which somebody may paste them, and the search for what is left of them."""

from __future__ import annotations

import json
import traceback
from base64 import b64encode
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

# 32 bytes in Base64, as Service Bus makes keys, and a client secret as Microsoft Entra ID makes them.
_KEY: Final = "c4nary+c4nary/c4nary0c4nary1c4nary2c4nary34="
_UNPADDED_KEY: Final = "c4naryQ8xK2/pR9vT+3LmZ7sBw1JhN5yGd6FcU0aEiX"
_CLIENT_SECRET: Final = "c4n8Q~c4nary-c4nary_c4nary.c4nary~c4nary"
_STRING: Final = f"Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessKeyName=Root;SharedAccessKey={_KEY}"
_SIGNED: Final = (
    "Endpoint=sb://contoso.servicebus.windows.net/;SharedAccessSignature=SharedAccessSignature sr=sb%3A%2F%2Fcontoso&"
    f"sig={quote(_KEY, safe='')}&se=1893456000&skn=Root"
)
# A client secret of one's own choice, in the forms of a connection that the guide shows.
_PASSWORD: Final = "c4nary-c4nary"
_URI: Final = f"servicebus-namespace://app:{_PASSWORD}@contoso.servicebus.windows.net/?authentication=client_secret"
# "c4nary" in Base64, by where it begins.
_ENCODED: Final = ("YzRuYXJ5", "M0bmFye", "jNG5hcn")
CANARIES: Final[dict[str, Any]] = {
    "connection string": _STRING,
    "connection string in a URI": quote(_STRING, safe=""),
    "connection string in a text": f"it is {_STRING} as you see",
    "connection string in JSON": json.dumps({"value": _STRING}),
    "connection string in a list": [_STRING],
    "connection string in a mapping": {"value": {"deep": _STRING}},
    "connection string in Base64": b64encode(f"{_STRING}\n".encode()).decode(),
    "connection string in hexadecimal": _STRING.encode().hex(),
    "signature": _SIGNED,
    "key": _KEY,
    "key without padding": _UNPADDED_KEY,
    "key without padding in a text": f"the key is {_UNPADDED_KEY}, as you see",
    "client secret": _CLIENT_SECRET,
    "connection as a URI": _URI,
    "connection as a URI in a URI": quote(_URI, safe=""),
    "connection in JSON": json.dumps({"conn_type": "servicebus_namespace", "host": "h", "password": _PASSWORD}),
    "password in the query of a URL": "s3://bucket/folder?user=u&password=c4nary-c4nary",
    "token": "eyJhbGciOiJub25lIn0.eyJjNG5hcnkiOiJjNG5hcnkifQ.c4naryc4nary",
}


def disclosed(text: str) -> bool:
    """Return whether a canary, or a large part of one, is in a text."""
    if b"c4nary".hex() in text:
        return True
    return "c4nary" in text or "eyJjNG5hcnki" in text or any(part in text for part in _ENCODED)


def outcome(call: Callable[[], Any]) -> str:
    """Return everything that shows what a call did: the ``repr`` of its result, or its error with all causes."""
    try:
        result = call()
    except Exception as error:  # noqa: BLE001  whatever it raises must not disclose
        return f"{error!r} {error} {error.args!r} {''.join(traceback.format_exception(error))}"
    return f"{result!r} {result}"
