"""References to a pair's settings: what a plan, an option, an argument or an event log may hold.

========================  ========================================================================
reference                 resolved, where the connection is made, from
========================  ========================================================================
``env:NAME``              the environment variable ``NAME``
``file:PATH``             the file ``PATH``, UTF-8
``airflow:CONN_ID``       the environment variable ``AIRFLOW_CONN_`` and the id in capitals, in which a
                          DAG hands its connection over when it submits
``default``               Microsoft Entra ID: what ``DefaultAzureCredential`` finds there
``managedIdentity``       Microsoft Entra ID: the machine's managed identity
========================  ========================================================================

The value of the first three is a JSON object: the settings of ``servicebus_pair.core.read_pair``, or an
Airflow connection in JSON, whose ``extra`` holds these. A namespace cannot be given by the id of another
connection (``primary_conn_id``), which only Airflow can look up: that is refused. The last two are no
place of settings: the hosts of both namespaces are given beside them.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from servicebus_pair.core.configuration import SIDES, PairSettings, read_pair
from servicebus_pair.core.endpoint_settings import secrets_in
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.redaction import Redaction

__all__ = ["REFERENCES", "PairReference", "check_reference"]

_ENVIRONMENT: Final = "env"
_FILE: Final = "file"
_AIRFLOW: Final = "airflow"
_AIRFLOW_VARIABLE: Final = "AIRFLOW_CONN_"
_PLACES: Final = {
    _ENVIRONMENT: re.compile(r"\w+"),
    _FILE: re.compile(r".*\S.*"),
    _AIRFLOW: re.compile(r"[\w.-]+"),
}
_IDENTITIES: Final = {"default": "default", "managedIdentity": "managed_identity"}
REFERENCES: Final = "env:NAME, file:PATH, airflow:CONN_ID, default and managedIdentity"
_NO_HOSTS: Final[Mapping[str, str]] = MappingProxyType({})


def check_reference(text: str) -> None:
    """Refuse what has not the form of a reference.

    :raises ConfigurationError: the text is not quoted, since someone may have given the secret itself.
    """
    scheme, _, target = text.partition(":")
    if not (scheme in _IDENTITIES and not target) and not (scheme in _PLACES and _PLACES[scheme].fullmatch(target)):
        raise ConfigurationError(
            f"the pair reference is not one: allowed are {REFERENCES}; settings themselves, such as a connection "
            "string, are never given"
        )


@dataclass(frozen=True, slots=True)
class PairReference:
    """Where the settings of a pair are; itself no secret.

    :param scheme: ``env``, ``file``, ``airflow``, or the name of an identity.
    :param target: name of the variable, path of the file, or id of the connection.
    :param hosts: for an identity, the hosts of the primary and the secondary.
    """

    scheme: str
    target: str
    hosts: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, *, hosts: Mapping[str, str] = _NO_HOSTS) -> PairReference:
        """Read a reference; nothing is looked up yet.

        :param hosts: hosts of the namespaces by side, ``primary`` and ``secondary``; for an identity.
        :raises ConfigurationError: not a reference; the text is not quoted, since someone may have
            given the secret itself. Or the hosts are missing, or given for nothing.
        """
        scheme, _, target = text.partition(":")
        check_reference(text)
        if scheme in _IDENTITIES:
            missing = [side for side in SIDES if not hosts.get(side)]
            if missing:
                raise ConfigurationError(
                    f"the pair reference is {scheme!r}, and the host of the {missing[0]} namespace is missing: "
                    "an identity needs the hosts of both"
                )
            return cls(scheme, "", tuple(hosts[side] for side in SIDES))
        if hosts:
            raise ConfigurationError(
                f"the pair reference {scheme}:{target} brings its own hosts: hosts are given beside an identity only"
            )
        return cls(scheme, target)

    def __str__(self) -> str:
        return f"{self.scheme}:{self.target}" if self.target else self.scheme

    def resolve(self, redaction: Redaction) -> PairSettings:
        """Read the settings where this runs, and teach ``redaction`` their secrets.

        :raises ConfigurationError: nothing is there, or it is not valid; secrets are not quoted.
        """
        settings = self._of_identity() if self.hosts else self._settings(self._read())
        for secret in secrets_in(settings):
            redaction.learn(secret)
        try:
            return read_pair(settings)
        except ConfigurationError as error:
            raise ConfigurationError(f"the pair reference {self}: {error}") from None

    def _of_identity(self) -> dict[str, Any]:
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
                f"hand {name} over with spark-submit, or set it in the environment of the executors"
            )
        return text

    def _read_file(self) -> str:
        try:
            return Path(self.target).read_text(encoding="utf-8")
        except OSError as error:
            raise ConfigurationError(
                f"the pair reference {self} names a file that cannot be read on this executor: {error.strerror}"
            ) from None

    def _settings(self, text: str) -> dict[str, Any]:
        value = self._object(text, "its value")
        if "extra" not in value:
            return value
        extra = value["extra"]
        return self._object(extra, "its extra") if isinstance(extra, str) else self._checked(extra, "its extra")

    def _object(self, text: str, what: str) -> dict[str, Any]:
        try:
            return self._checked(json.loads(text), what)
        except json.JSONDecodeError as error:
            # Neither the text nor the decoder's error, which carries it.
            where = f"line {error.lineno}, column {error.colno}"
            raise ConfigurationError(f"the pair reference {self}: {what} is not JSON ({where})") from None

    def _checked(self, value: Any, what: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ConfigurationError(
                f"the pair reference {self}: {what} is a {type(value).__name__}: it must be a JSON object"
            )
        return value
