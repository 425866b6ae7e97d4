"""References to a pair's settings, safe to keep in a plan, an option, an argument or an event log.

========================  ========================================================================
reference                 resolved, in the process that connects, from
========================  ========================================================================
``env:NAME``              the environment variable ``NAME``
``file:PATH``             the file ``PATH``, UTF-8
``airflow:CONN_ID``       the environment variable ``AIRFLOW_CONN_{CONN_ID}`` (upper case), which a DAG sets
                          when it submits
``default``               Microsoft Entra ID: ``DefaultAzureCredential``
``managedIdentity``       Microsoft Entra ID: the machine's managed identity
========================  ========================================================================

The value of the first three is a JSON object: the settings of ``servicebus_pair.core.read_pair_settings``, or an
Airflow connection in JSON with these settings in ``extra``. References to other connections
(``primary_conn_id``) are rejected, because only Airflow can look them up. The last two contain no
settings, so the hosts of both namespaces must be given separately.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from servicebus_pair.core import PairSettings, read_pair_settings
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import read_regular, secret_kind
from servicebus_pair.core.pair import SIDES, find_secrets
from servicebus_pair.spark.base.redaction import Redaction

_ENVIRONMENT: Final = "env"
_FILE: Final = "file"
_AIRFLOW: Final = "airflow"
_AIRFLOW_VARIABLE: Final = "AIRFLOW_CONN_"
_TARGETS: Final = {
    _ENVIRONMENT: re.compile(r"\w+"),
    _FILE: re.compile(r".*\S.*"),
    _AIRFLOW: re.compile(r"[\w.-]+"),
}
_IDENTITIES: Final = {"default": "default", "managedIdentity": "managed_identity"}
REFERENCES: Final = "env:NAME, file:PATH, airflow:CONN_ID, default and managedIdentity"
_MAX_SETTINGS_BYTES: Final = 1 << 20
_NO_HOSTS: Final[Mapping[str, str]] = MappingProxyType({})


def check_reference(text: str) -> None:
    """Check the form of a reference.

    :raises ConfigurationError: not a reference; the error does not quote the text, which may be a secret.
    """
    scheme, _, target = text.partition(":")
    refers = scheme in _TARGETS and _TARGETS[scheme].fullmatch(target) and secret_kind(target) is None
    if not (refers or (scheme in _IDENTITIES and not target)):
        raise ConfigurationError(
            f"the pair reference is invalid: allowed are {REFERENCES}; do not pass the settings themselves, such as a "
            "connection string"
        )


@dataclass(frozen=True, slots=True)
class PairReference:
    """Where to find the settings of a pair; contains no secret.

    :param scheme: ``env``, ``file``, ``airflow``, or the name of an identity.
    :param target: name of the variable, path of the file, or connection id.
    :param hosts: for an identity, the hosts of the primary and the secondary.
    """

    scheme: str
    target: str
    hosts: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, *, hosts: Mapping[str, str] = _NO_HOSTS) -> PairReference:
        """Parse a reference without looking it up.

        :param hosts: namespace hosts by side, ``primary`` and ``secondary``; required for an identity.
        :raises ConfigurationError: not a reference (the error does not quote the text, which may be a secret), or
            the hosts are missing or not allowed.
        """
        scheme, _, target = text.partition(":")
        check_reference(text)
        if scheme in _IDENTITIES:
            missing = [side for side in SIDES if not hosts.get(side)]
            if missing:
                raise ConfigurationError(
                    f"the pair reference is {scheme!r}, but the host of the {missing[0]} namespace is missing: "
                    "an identity needs the hosts of both namespaces"
                )
            return cls(scheme, "", tuple(hosts[side] for side in SIDES))
        if hosts:
            raise ConfigurationError(
                f"the pair reference {scheme}:{target} contains its own hosts: give hosts with an identity only"
            )
        return cls(scheme, target)

    def __str__(self) -> str:
        return f"{self.scheme}:{self.target}" if self.target else self.scheme

    def resolve(self, redaction: Redaction) -> PairSettings:
        """Read the settings in this process, and register their secrets with ``redaction``.

        :raises ConfigurationError: the settings are missing or invalid; secrets are not quoted.
        """
        settings = self._identity_settings() if self.hosts else self._parse_settings(self._read())
        for secret in find_secrets(settings):
            redaction.add_secret(secret)
        try:
            return read_pair_settings(settings)
        except ConfigurationError as error:
            raise ConfigurationError(f"the pair reference {self}: {error}") from None

    def _identity_settings(self) -> dict[str, Any]:
        hosts = {f"{side}_host": host for side, host in zip(SIDES, self.hosts, strict=True)}
        return hosts | {f"{side}_authentication": _IDENTITIES[self.scheme] for side in SIDES}

    def _read(self) -> str:
        if self.scheme == _FILE:
            return self._read_file()
        name = f"{_AIRFLOW_VARIABLE}{self.target.upper()}" if self.scheme == _AIRFLOW else self.target
        text = os.environ.get(name)
        if text is None:
            raise ConfigurationError(
                f"the pair reference {self} names an environment variable that is not set on this executor: "
                f"pass {name} with spark-submit, or set it in the environment of the executors"
            )
        return text

    def _read_file(self) -> str:
        try:
            return read_regular(self.target, limit=_MAX_SETTINGS_BYTES, follow=True).decode()
        except UnicodeDecodeError:
            raise ConfigurationError(f"the pair reference {self} names a file that is not UTF-8") from None
        except OSError as error:
            raise ConfigurationError(
                f"the pair reference {self} names a file that cannot be read on this executor: {error.strerror}"
            ) from None

    def _parse_settings(self, text: str) -> dict[str, Any]:
        value = self._parse_object(text, "its value")
        if "extra" not in value:
            return value
        extra = value["extra"]
        return self._parse_object(extra, "its extra") if isinstance(extra, str) else self._object(extra, "its extra")

    def _parse_object(self, text: str, what: str) -> dict[str, Any]:
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            # The decoder's error contains the text, which may hold secrets: report only the position.
            where = f"line {error.lineno}, column {error.colno}"
            raise ConfigurationError(f"the pair reference {self}: {what} is not JSON ({where})") from None
        except (RecursionError, ValueError):  # or a number of thousands of digits
            raise ConfigurationError(
                f"the pair reference {self}: {what} is nested too deeply, or has a very long number"
            ) from None
        return self._object(value, what)

    def _object(self, value: Any, what: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ConfigurationError(
                f"the pair reference {self}: {what} is a {type(value).__name__}: it must be a JSON object"
            )
        return value
