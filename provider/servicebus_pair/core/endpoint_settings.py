"""One namespace from a plain mapping: how it is reached, how to authenticate to it, and how it is managed.

``authentication`` says by what, and each way has fields of its own:

======================  =========================================  ====================================
authentication          needs                                      may have
======================  =========================================  ====================================
``connection_string``   connection_string
``default``             host                                       client_id, tenant_id, authority, emulator
``client_secret``       host, tenant_id, client_id, client_secret  authority, emulator
``managed_identity``    host                                       client_id, emulator
======================  =========================================  ====================================

Managed through Azure Resource Manager (subscription_id, resource_group, perhaps management_endpoint), a namespace is
managed by the same identity. Where it authenticates by a connection string, that is the client secret when one is
given, and what ``DefaultAzureCredential`` finds when not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.identity import ClientSecret, DefaultIdentity, Identity, ManagedIdentity
from servicebus_pair.core.options import TRANSPORTS, ArmCoordinates, Endpoint, Secret

__all__ = ["AUTHENTICATIONS", "ENDPOINT_SETTINGS", "boolean", "read_endpoint", "secrets_in", "stated"]

_BY_STRING: Final = "connection_string"
_DEFAULT: Final = "default"
_CLIENT_SECRET: Final = "client_secret"  # noqa: S105  the name of the setting
_MANAGED: Final = "managed_identity"
AUTHENTICATIONS: Final = (_BY_STRING, _DEFAULT, _CLIENT_SECRET, _MANAGED)

_SERVICE_PRINCIPAL: Final = ("tenant_id", "client_id", "client_secret")
_NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    _BY_STRING: ("connection_string",),
    _DEFAULT: ("host",),
    _CLIENT_SECRET: ("host", *_SERVICE_PRINCIPAL),
    _MANAGED: ("host",),
}
_POSSIBLE: Final[Mapping[str, tuple[str, ...]]] = {
    _BY_STRING: (),
    _DEFAULT: ("client_id", "tenant_id", "authority", "emulator"),
    _CLIENT_SECRET: ("authority", "emulator"),
    _MANAGED: ("client_id", "emulator"),
}
_OF_AUTHENTICATION: Final = ("connection_string", "host", *_SERVICE_PRINCIPAL, "authority", "emulator")
_OF_ARM: Final = ("subscription_id", "resource_group", "management_endpoint")
_OF_ANY: Final = ("namespace", "administration", "transport", "ca_file", "endpoint_address")
ENDPOINT_SETTINGS: Final = ("authentication", *_OF_AUTHENTICATION, *_OF_ARM, *_OF_ANY)
_FILLED_IN: Final[Mapping[str, tuple[Any, ...]]] = {
    "authentication": (_BY_STRING,),
    "emulator": (False, "false"),
    "transport": TRANSPORTS[:1],
}
_SECRET_PARTS: Final = ("sharedaccesskey", "sharedaccesssignature")


def read_endpoint(settings: Mapping[str, Any], *, called: Callable[[str], str] = str) -> Endpoint:
    """Read one namespace.

    :param settings: those of ``ENDPOINT_SETTINGS``; empty values count as absent.
    :param called: what a setting is called where it was given, for errors.
    :raises ConfigurationError: naming the setting, its value (never a secret) and what is allowed.
    """
    return _Reader(stated(settings), called).endpoint()


def stated(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Answer the settings that say something: no empty ones, and no defaults that a form fills in."""
    return {
        name: value
        for name, value in settings.items()
        if value is not None and value != "" and value not in _FILLED_IN.get(name, ())
    }


def secrets_in(settings: Mapping[str, Any]) -> list[str]:
    """Answer every text in ``settings`` that must not be shown, for masks, the longest first.

    Each is there as it is and as JSON and URLs write it.

    :param settings: those of an endpoint or, with their prefixes, of a pair; valid or not.
    """
    found: set[str] = set()
    for name, value in settings.items():
        if not isinstance(value, str):
            continue
        if name.endswith("client_secret"):
            found.add(value)
        elif name.endswith("connection_string"):
            found |= {value, *_secret_parts(value)}
    found |= {written for each in found for written in _spellings(each)}
    return sorted(found - {""}, key=len, reverse=True)


def _spellings(secret: str) -> set[str]:
    """What a secret looks like in JSON, and both of them in a URL, as in the URI of a connection."""
    texts = {secret, json.dumps(secret)[1:-1]}
    return texts | {quoted for text in texts for quoted in (quote(text, safe=""), quote_plus(text))}


def _secret_parts(connection_string: str) -> set[str]:
    """The key, and the signature with its essence, which may appear alone and unquoted."""
    parts: set[str] = set()
    for part in connection_string.split(";"):
        label, _, value = part.partition("=")
        if label.strip().casefold() in _SECRET_PARTS:
            parts.add(value.strip())
            parts |= {field.removeprefix("sig=") for field in value.split("&") if field.startswith("sig=")}
    return parts | {unquote(part) for part in parts}


def boolean(called: str, value: Any) -> bool:
    """Read true or false, also as text. :raises ConfigurationError: it is neither."""
    match value:
        case bool():
            return value
        case str() if value.lower() in ("true", "false"):
            return value.lower() == "true"
    raise ConfigurationError(f"setting {called} is {value!r}: allowed are true and false")


@dataclass(frozen=True, slots=True)
class _Reader:
    """What is given for one namespace, none of it empty, and what each setting is called there."""

    given: Mapping[str, Any]
    called: Callable[[str], str]

    def endpoint(self) -> Endpoint:
        authentication = self._choice("authentication", AUTHENTICATIONS)
        self._choice("transport", TRANSPORTS)
        self._check_fields(authentication)
        common: dict[str, Any] = {name: self._text(name) for name in _OF_ANY if name in self.given}
        self._check_file("ca_file")
        arm = self._arm(authentication)
        source = "connection_string" if authentication == _BY_STRING else "host"
        try:
            if authentication == _BY_STRING:
                return Endpoint.from_connection_string(self._needed(source), arm=arm, **common)
            emulator = "emulator" in self.given and boolean(self.called("emulator"), self.given["emulator"])
            identity = self._identity(authentication)
            return Endpoint.from_credential(self._needed(source), identity, emulator=emulator, arm=arm, **common)
        except ConfigurationError as error:
            raise ConfigurationError(f"setting {self.called(source)}: {error}") from error

    def _choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """Read one of ``allowed``; the first when nothing is given."""
        chosen = self.given.get(name, allowed[0])
        if chosen not in allowed:
            raise ConfigurationError(f"setting {self.called(name)} is {chosen!r}: allowed are {', '.join(allowed)}")
        return str(chosen)

    def _check_fields(self, authentication: str) -> None:
        """Refuse what is missing, and what would be given for nothing."""
        unknown = sorted(set(self.given) - set(ENDPOINT_SETTINGS))
        if unknown:
            raise ConfigurationError(
                f"setting {self.called(unknown[0])} is unknown: allowed are {', '.join(sorted(ENDPOINT_SETTINGS))}"
            )
        for name in _NEEDED[authentication]:
            if not isinstance(self.given.get(name), str):
                raise ConfigurationError(
                    f"setting {self.called(name)} is missing, or no text: {self.called('authentication')} "
                    f"{authentication!r} needs {_listed(_NEEDED[authentication])}; "
                    f"other authentications are {_listed(each for each in AUTHENTICATIONS if each != authentication)}"
                )
        used = (*_NEEDED[authentication], *_POSSIBLE[authentication])
        if authentication == _BY_STRING and any(name in self.given for name in _OF_ARM):
            used = (*used, *_SERVICE_PRINCIPAL, "authority")
        for name in _OF_AUTHENTICATION:
            if name in self.given and name not in used:
                raise ConfigurationError(
                    f"setting {self.called(name)} is given, but {self.called('authentication')} is "
                    f"{authentication!r}, which does not use it: leave it out, or choose another of "
                    f"{_listed(AUTHENTICATIONS)}"
                )

    def _arm(self, authentication: str) -> ArmCoordinates | None:
        if not any(name in self.given for name in _OF_ARM):
            return None
        for name in ("subscription_id", "resource_group"):
            if name not in self.given:
                raise ConfigurationError(
                    f"setting {self.called(name)} is missing: to manage by Azure Resource Manager, subscription_id "
                    "and resource_group are given"
                )
        by_secret = authentication == _BY_STRING and "client_secret" in self.given
        manager = _CLIENT_SECRET if by_secret else _DEFAULT if authentication == _BY_STRING else authentication
        return ArmCoordinates(
            subscription_id=self._needed("subscription_id"),
            resource_group=self._needed("resource_group"),
            management_endpoint=self._text("management_endpoint"),
            credential=self._identity(manager),
        )

    def _identity(self, authentication: str) -> Identity:
        ca_file = self._text("ca_file")
        if authentication == _MANAGED:
            return ManagedIdentity(client_id=self._text("client_id"), ca_file=ca_file)
        if authentication == _DEFAULT:
            return DefaultIdentity(
                client_id=self._text("client_id"),
                tenant_id=self._text("tenant_id"),
                authority=self._text("authority"),
                ca_file=ca_file,
            )
        return ClientSecret(
            tenant_id=self._needed("tenant_id"),
            client_id=self._needed("client_id"),
            client_secret=Secret(self._needed("client_secret")),
            authority=self._text("authority"),
            ca_file=ca_file,
        )

    def _check_file(self, name: str) -> None:
        path = self._text(name)
        if path is not None and not Path(path).is_file():
            raise ConfigurationError(f"setting {self.called(name)} is {path!r}: there is no such file here")

    def _needed(self, name: str) -> str:
        text = self._text(name)
        if text is None:
            raise ConfigurationError(f"setting {self.called(name)} is missing")
        return text

    def _text(self, name: str) -> str | None:
        value = self.given.get(name)
        if value is not None and not isinstance(value, str):
            # Not the value: it may be a secret in the wrong shape.
            raise ConfigurationError(f"setting {self.called(name)} is a {type(value).__name__}: it must be a text")
        return value


def _listed(names: Any) -> str:
    return ", ".join(names)
