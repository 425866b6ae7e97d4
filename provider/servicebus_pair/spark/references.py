"""References to a pair's settings: what a plan, an argument or an event log may hold.

========================  ========================================================================
reference                 read, on the executor, from
========================  ========================================================================
``env:NAME``              the environment variable ``NAME``
``file:PATH``             the file ``PATH``, UTF-8
========================  ========================================================================

The value is a JSON object: the settings of ``servicebus_pair.core.read_pair``, or an Airflow
connection in JSON, whose ``extra`` holds these. A namespace cannot be given by the id of another
connection (``primary_conn_id``), which only Airflow can look up: that is refused.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servicebus_pair.core.configuration import PairSettings, read_pair
from servicebus_pair.core.endpoint_settings import secrets_in
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.redaction import Redaction

__all__ = ["PairReference"]

_SCHEMES: Final = ("env", "file")
_ALLOWED: Final = "allowed are env:NAME and file:PATH"


@dataclass(frozen=True, slots=True)
class PairReference:
    """Where the settings of a pair are; itself no secret.

    :param scheme: ``env`` or ``file``.
    :param target: name of the variable, or path of the file.
    """

    scheme: str
    target: str

    @classmethod
    def parse(cls, text: str) -> PairReference:
        """Read a reference; nothing is looked up yet.

        :raises ConfigurationError: not a reference; the text is not quoted, since someone may have
            given the secret itself.
        """
        scheme, _, target = text.partition(":")
        if scheme not in _SCHEMES or not target:
            raise ConfigurationError(f"the pair reference is not one: {_ALLOWED}; settings themselves are never given")
        return cls(scheme, target)

    def __str__(self) -> str:
        return f"{self.scheme}:{self.target}"

    def resolve(self, redaction: Redaction) -> PairSettings:
        """Read the settings where this runs, and teach ``redaction`` their secrets.

        :raises ConfigurationError: nothing is there, or it is not valid; secrets are not quoted.
        """
        settings = self._settings(self._read())
        for secret in secrets_in(settings):
            redaction.learn(secret)
        try:
            return read_pair(settings)
        except ConfigurationError as error:
            raise ConfigurationError(f"the pair reference {self}: {error}") from None

    def _read(self) -> str:
        if self.scheme == "env":
            text = os.environ.get(self.target)
            if text is None:
                raise ConfigurationError(
                    f"the pair reference {self} names an environment variable that is not set on this executor: "
                    f"set it for spark-submit, or with spark.executorEnv.{self.target} on a cluster"
                )
            return text
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
