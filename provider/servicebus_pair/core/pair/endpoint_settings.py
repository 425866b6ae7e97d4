"""Read the settings of one namespace: address, authentication and management.

``authentication`` selects the method, and each method has its own fields:

======================  =========================================  ====================================
authentication          required                                   optional
======================  =========================================  ====================================
``connection_string``   connection_string
``default``             host                                       client_id, tenant_id, authority, emulator
``client_secret``       host, tenant_id, client_id, client_secret  authority, emulator
``managed_identity``    host                                       client_id, emulator
======================  =========================================  ====================================

A namespace can be managed through Azure Resource Manager (subscription_id, resource_group, optionally
management_endpoint) with the same identity. With a connection string, management uses the client secret if one is
given, and ``DefaultAzureCredential`` otherwise.

Tokens of an identity that the machine has (``default``, ``managed_identity``) go to hosts of Service Bus and of Azure
Resource Manager, and what it proves itself with to token services of Azure, and all to this machine, only;
``allow_other_hosts`` lifts this.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, quote_plus, unquote

from servicebus_pair.core.model.checks import boolean, choice, no_secret, service_url
from servicebus_pair.core.model.errors import ConfigurationError
from servicebus_pair.core.model.options import TRANSPORTS, ArmCoordinates, Endpoint, Secret
from servicebus_pair.core.sdk.credentials import ClientSecret, DefaultIdentity, Identity, ManagedIdentity

_CONNECTION_STRING: Final = "connection_string"
_DEFAULT: Final = "default"
_CLIENT_SECRET: Final = "client_secret"  # noqa: S105  the name of the setting
_MANAGED_IDENTITY: Final = "managed_identity"
AUTHENTICATIONS: Final = (_CONNECTION_STRING, _DEFAULT, _CLIENT_SECRET, _MANAGED_IDENTITY)

_SERVICE_PRINCIPAL: Final = ("tenant_id", "client_id", "client_secret")
_REQUIRED: Final[Mapping[str, tuple[str, ...]]] = {
    _CONNECTION_STRING: ("connection_string",),
    _DEFAULT: ("host",),
    _CLIENT_SECRET: ("host", *_SERVICE_PRINCIPAL),
    _MANAGED_IDENTITY: ("host",),
}
_OPTIONAL: Final[Mapping[str, tuple[str, ...]]] = {
    _CONNECTION_STRING: (),
    _DEFAULT: ("client_id", "tenant_id", "authority", "emulator"),
    _CLIENT_SECRET: ("authority", "emulator"),
    _MANAGED_IDENTITY: ("client_id", "emulator"),
}
_AUTHENTICATION_SETTINGS: Final = ("connection_string", "host", *_SERVICE_PRINCIPAL, "authority", "emulator")
_ARM_SETTINGS: Final = ("subscription_id", "resource_group", "management_endpoint")
_COMMON_SETTINGS: Final = ("namespace", "administration", "transport", "ca_file", "endpoint_address")
_OTHER_HOSTS: Final = "allow_other_hosts"
ENDPOINT_SETTINGS: Final = (
    "authentication",
    *_AUTHENTICATION_SETTINGS,
    *_ARM_SETTINGS,
    *_COMMON_SETTINGS,
    _OTHER_HOSTS,
)
# All authorities that the world trusts take a quarter of a MiB.
_MAX_FILE_BYTES: Final = 16 * 2**20
_OWN_IDENTITIES: Final = (_DEFAULT, _MANAGED_IDENTITY)
_THIS_MACHINE: Final = r"|localhost|\[::1\]|127\.[0-9]+\.[0-9]+\.[0-9]+"
_SERVICE_BUS_HOST: Final = re.compile(
    r"[a-z0-9-]+\.servicebus\.(windows\.net|usgovcloudapi\.net|chinacloudapi\.cn|cloudapi\.de)" + _THIS_MACHINE
)
_RESOURCE_MANAGER_HOST: Final = re.compile(
    r"management\.(azure\.com|usgovcloudapi\.net|chinacloudapi\.cn|microsoftazure\.de)" + _THIS_MACHINE
)
_TOKEN_HOST: Final = re.compile(
    r"login\.(microsoftonline\.(com|us|de)|windows\.net|chinacloudapi\.cn|partner\.microsoftonline\.cn)" + _THIS_MACHINE
)
_KNOWN_HOSTS: Final[Mapping[str, re.Pattern[str]]] = {
    **dict.fromkeys(("host", "administration", "endpoint_address"), _SERVICE_BUS_HOST),
    "management_endpoint": _RESOURCE_MANAGER_HOST,
    "authority": _TOKEN_HOST,
}
_FORM_DEFAULTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "authentication": (_CONNECTION_STRING,),
    "emulator": (False, "false"),
    _OTHER_HOSTS: (False, "false"),
    "transport": TRANSPORTS[:1],
}
_SECRET_SETTINGS: Final = (_CONNECTION_STRING, _CLIENT_SECRET, "spool_secret_key")
_PLACE: Final = f"in {_CONNECTION_STRING}, a secret of Microsoft Entra ID in {_CLIENT_SECRET}"
_SECRET_PARTS: Final = ("sharedaccesskey", "sharedaccesssignature")


def read_endpoint(settings: Mapping[str, Any], *, label: Callable[[str], str] = str) -> Endpoint:
    """Read the settings of one namespace.

    :param settings: values by the names in ``ENDPOINT_SETTINGS``; empty values count as absent.
    :param label: returns the name of a setting at its origin, for error messages.
    :raises ConfigurationError: a setting is wrong; the text names it, its value (never a secret) and what is allowed.
    """
    given = non_empty(settings)
    refuse_misplaced_secrets(given, label)
    return _EndpointParser(given, label).endpoint()


def check_added_hosts(
    added: Mapping[str, Any], *, owner: Mapping[str, Any], label: Callable[[str], str], lifted_by: str
) -> None:
    """Check the hosts that somebody adds to the settings of another, whose tokens they would get.

    :param added: non-empty settings.
    :param owner: the settings that have the credential.
    :param lifted_by: the name of the setting of the owner that allows any host.
    :raises ConfigurationError: one is neither Azure's nor this machine, and the owner does not allow that.
    """
    given = non_empty(owner)
    if _OTHER_HOSTS not in given or not boolean(f"setting {lifted_by}", given[_OTHER_HOSTS]):
        _EndpointParser(added, label).check_hosts(_KNOWN_HOSTS, "of the credential that is referred to", lifted_by)


def refuse_misplaced_secrets(given: Mapping[str, Any], label: Callable[[str], str] = str) -> None:
    """Refuse secrets in fields that are not for secrets, and as names of fields.

    :param given: settings of an endpoint or, with prefixes, of a pair.
    :raises ConfigurationError: naming the field, not its value.
    """
    for name, value in given.items():
        no_secret("the name of a setting", name, belongs=_PLACE)
        if not name.endswith(_SECRET_SETTINGS):
            no_secret(f"setting {label(name)}", value, belongs=_PLACE)


def non_empty(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without empty values and without the defaults of Airflow's connection form."""
    return {name: value for name, value in settings.items() if value not in (None, "", *_FORM_DEFAULTS.get(name, ()))}


def find_secrets(settings: Mapping[str, Any]) -> list[str]:
    """Return every secret in ``settings``, longest first, for masking; each also in its JSON and URL encodings.

    :param settings: settings of an endpoint or, with prefixes, of a pair; valid or not.
    """
    found: set[str] = set()
    for name, value in settings.items():
        if not isinstance(value, str):
            continue
        if name.endswith(("client_secret", "spool_secret_key")):
            found.add(value)
        elif name.endswith("connection_string"):
            found |= {value, *_secret_parts(value)}
    found |= {encoded for each in found for encoded in _encodings(each)}
    return sorted(found - {""}, key=len, reverse=True)


def _encodings(secret: str) -> set[str]:
    """Return a secret as is and in JSON, and both URL-encoded, as in the URI of a connection."""
    texts = {secret, json.dumps(secret)[1:-1]}
    return texts | {quoted for text in texts for quoted in (quote(text, safe=""), quote_plus(text))}


def _secret_parts(connection_string: str) -> set[str]:
    """Return the key, and the signature also without its ``sig=``, since logs may show it alone and decoded."""
    parts: set[str] = set()
    for part in connection_string.split(";"):
        label, _, value = part.partition("=")
        if label.strip().casefold() in _SECRET_PARTS:
            parts.add(value.strip())
            parts |= {field.removeprefix("sig=") for field in value.split("&") if field.startswith("sig=")}
    return parts | {unquote(part) for part in parts}


@dataclass(frozen=True, slots=True)
class _EndpointParser:
    """Non-empty settings of one namespace, and the function that labels them in errors."""

    given: Mapping[str, Any]
    label: Callable[[str], str]

    def endpoint(self) -> Endpoint:
        authentication = self._choice("authentication", AUTHENTICATIONS)
        self._choice("transport", TRANSPORTS)
        self._check_fields(authentication)
        common: dict[str, Any] = {name: self._text(name) for name in _COMMON_SETTINGS if name in self.given}
        self._check_file("ca_file")
        if "authority" in self.given:
            service_url("https://", "")(f"setting {self.label('authority')}", self._text("authority"))
        self._check_token_hosts(authentication)
        arm = self._arm(authentication)
        source = "connection_string" if authentication == _CONNECTION_STRING else "host"
        try:
            if authentication == _CONNECTION_STRING:
                return Endpoint.from_connection_string(self._require(source), arm=arm, **common)
            emulator = "emulator" in self.given and boolean(f"setting {self.label('emulator')}", self.given["emulator"])
            identity = self._identity(authentication)
            return Endpoint.from_credential(self._require(source), identity, emulator=emulator, arm=arm, **common)
        except ConfigurationError as error:
            raise ConfigurationError(f"setting {self.label(source)}: {error}") from error

    def _check_token_hosts(self, authentication: str) -> None:
        """Refuse to send tokens of the machine's identity to hosts that are not Azure's, unless told to."""
        if _OTHER_HOSTS in self.given and boolean(f"setting {self.label(_OTHER_HOSTS)}", self.given[_OTHER_HOSTS]):
            return
        named: list[str] = []
        if authentication in _OWN_IDENTITIES:
            named += ("host", "administration", "endpoint_address")
        if authentication != _CLIENT_SECRET and "client_secret" not in self.given:
            # With a connection string, the machine's identity may manage the namespace.
            named += ("management_endpoint", "authority")
        hosts = {name: _KNOWN_HOSTS[name] for name in named}
        self.check_hosts(hosts, "of this machine's identity", self.label(_OTHER_HOSTS))

    def check_hosts(self, hosts: Mapping[str, re.Pattern[str]], whose: str, lifted_by: str) -> None:
        """:raises ConfigurationError: a host is given that is not known."""
        for name, known in hosts.items():
            host = (self._text(name) or "").rpartition("://")[2].rstrip("/").casefold()
            if host and known.fullmatch(re.sub(r":[0-9]{1,5}$", "", host)) is None:
                raise ConfigurationError(
                    f"setting {self.label(name)} is not a host of Azure or this machine, and would get tokens or a "
                    f"secret {whose}: allowed with {lifted_by}"
                )

    def _choice(self, name: str, allowed: tuple[str, ...]) -> str:
        """Return one of ``allowed``, by default the first."""
        return choice(*allowed)(f"setting {self.label(name)}", self.given.get(name, allowed[0]))

    def _check_fields(self, authentication: str) -> None:
        """Reject unknown, missing and unused settings."""
        unknown = sorted(set(self.given) - set(ENDPOINT_SETTINGS))
        if unknown:
            raise ConfigurationError(
                f"setting {self.label(unknown[0])} is unknown: allowed are {', '.join(sorted(ENDPOINT_SETTINGS))}"
            )
        for name in _REQUIRED[authentication]:
            if not isinstance(self.given.get(name), str):
                raise ConfigurationError(
                    f"setting {self.label(name)} is missing, or is not text: {self.label('authentication')} "
                    f"{authentication!r} requires {_join(_REQUIRED[authentication])}; "
                    f"other authentications are {_join(each for each in AUTHENTICATIONS if each != authentication)}"
                )
        used = (*_REQUIRED[authentication], *_OPTIONAL[authentication])
        if authentication == _CONNECTION_STRING and any(name in self.given for name in _ARM_SETTINGS):
            used = (*used, *_SERVICE_PRINCIPAL, "authority")
        for name in _AUTHENTICATION_SETTINGS:
            if name in self.given and name not in used:
                raise ConfigurationError(
                    f"setting {self.label(name)} is given, but {self.label('authentication')} is "
                    f"{authentication!r}, which does not use it: leave it out, or choose another of "
                    f"{_join(AUTHENTICATIONS)}"
                )

    def _arm(self, authentication: str) -> ArmCoordinates | None:
        if not any(name in self.given for name in _ARM_SETTINGS):
            return None
        for name in ("subscription_id", "resource_group"):
            if name not in self.given:
                raise ConfigurationError(
                    f"setting {self.label(name)} is missing: management through Azure Resource Manager requires "
                    "subscription_id and resource_group"
                )
        return ArmCoordinates(
            subscription_id=self._require("subscription_id"),
            resource_group=self._require("resource_group"),
            management_endpoint=self._text("management_endpoint"),
            credential=self._identity(authentication),
        )

    def _identity(self, authentication: str) -> Identity:
        """Return the identity of the settings; with a connection string, the one that manages the namespace."""
        ca_file = self._text("ca_file")
        if authentication == _MANAGED_IDENTITY:
            return ManagedIdentity(client_id=self._text("client_id"), ca_file=ca_file)
        if "client_secret" in self.given:
            return ClientSecret(
                tenant_id=self._require("tenant_id"),
                client_id=self._require("client_id"),
                client_secret=Secret(self._require("client_secret")),
                authority=self._text("authority"),
                ca_file=ca_file,
            )
        return DefaultIdentity(
            client_id=self._text("client_id"),
            tenant_id=self._text("tenant_id"),
            authority=self._text("authority"),
            ca_file=ca_file,
        )

    def _check_file(self, name: str) -> None:
        path = self._text(name)
        try:
            # What the kernel writes while it is read, which may never end, has no size.
            readable = path is None or (Path(path).is_file() and 0 < Path(path).stat().st_size <= _MAX_FILE_BYTES)
        except OSError:
            # Such as a name that is too long for this machine.
            readable = False
        if not readable:
            shown = repr(path) if path is not None and path.startswith(("/", ".")) else "a path that is not shown"
            raise ConfigurationError(
                f"setting {self.label(name)} is {shown}: the file does not exist on this machine, is empty, or has "
                f"more than {_MAX_FILE_BYTES >> 20} MiB"
            )

    def _require(self, name: str) -> str:
        text = self._text(name)
        if text is None:
            raise ConfigurationError(f"setting {self.label(name)} is missing")
        return text

    def _text(self, name: str) -> str | None:
        value = self.given.get(name)
        if value is not None and not isinstance(value, str):
            # Without the value: it may be a secret of the wrong type.
            raise ConfigurationError(f"setting {self.label(name)} is a {type(value).__name__}: it must be text")
        return value


def _join(names: Any) -> str:
    return ", ".join(names)
