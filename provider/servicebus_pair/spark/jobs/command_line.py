"""Shared by the command-line programs: arguments, errors, and the Spark session."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from servicebus_pair.core import EntityHealth
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.ledger import PublishManifest
from servicebus_pair.core.model import no_secret, printable
from servicebus_pair.spark.base.credential_reference import REFERENCES
from servicebus_pair.spark.base.report_files import check_writable
from servicebus_pair.spark.jobs.parent_watch import end_without_task
from servicebus_pair.spark.transfer.publishing import publish

SPARK_ERRORS: Final = (PySparkException, Py4JError)
"""What Spark raises on the driver: an error of Java that PySpark does not know comes from Py4J as it is."""


class JobParser(argparse.ArgumentParser):
    """Parser of a program: it refuses arguments that hold a secret, and quotes none in its errors."""

    def parse_args(self, args: Sequence[str], namespace: Any = None) -> argparse.Namespace:  # type: ignore[override]
        """Parse the arguments, which are no settings: those are where ``--pair`` refers to."""
        name = "an argument"
        for each in args:
            option, _, value = each.partition("=") if each.startswith("--") else ("", "", each)
            name = option if option and not any(map(str.isspace, option)) else name
            try:
                no_secret(name, value or option, belongs=f"where --pair refers to: {REFERENCES}")
            except ConfigurationError as error:
                self.error(str(error))
        parsed: argparse.Namespace = super().parse_args(args, namespace)
        return parsed

    def error(self, message: str) -> NoReturn:
        """Print the usage and what is wrong, and exit with status 2."""
        super().error(printable(message))


@dataclass(frozen=True, slots=True)
class PublishArguments:
    """Arguments common to programs that publish.

    :param rate: messages per second over all tasks; ``None`` is unlimited.
    :param manifest: file to which the manifest is written.
    :param health: known health records by entity path.
    :param errors: folder to which rows are written that can never be sent.
    """

    pair: str
    ledger: str
    run: str
    rate: float | None
    manifest: str | None
    health: dict[str, EntityHealth]
    errors: str | None = None

    @staticmethod
    def add_to(parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        add_arguments(parser, "--pair", "--ledger", "--run", "--rate")
        parser.add_argument("--manifest", help="file to which the manifest is written, as JSON")
        parser.add_argument("--health", default="{}", help="JSON: health records by entity")
        parser.add_argument(
            "--errors",
            help="folder to which rows are written that can never be sent; default: such a row fails the job",
        )

    @classmethod
    def from_parsed(cls, parsed: argparse.Namespace) -> PublishArguments:
        """Create from parsed arguments. :raises ConfigurationError: the health is invalid."""
        health = _parse_health(parsed.health)
        return cls(parsed.pair, parsed.ledger, parsed.run, parsed.rate, parsed.manifest, health, parsed.errors)

    def publish(self, df: DataFrame, *, entity: str | None = None, **extra: Any) -> PublishManifest:
        """Publish ``df`` and write the manifest, with ``extra`` as additional top-level fields.

        :param entity: destination of rows without an ``entity`` value.
        :raises ConfigurationError: see ``publish``, or the manifest cannot be written; nothing was sent.
        """
        if self.manifest is not None:
            check_writable(self.manifest, what="manifest")
        manifest = publish(
            df,
            pair_reference=self.pair,
            ledger=self.ledger,
            run=self.run,
            entity=entity,
            rate=self.rate,
            health=self.health,
            error_table=self.errors,
        )
        if self.manifest is not None:
            manifest.write(self.manifest, **extra)
        return manifest


def _parse_health(text: str) -> dict[str, EntityHealth]:
    try:
        return {entity: EntityHealth.from_json(value) for entity, value in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise ConfigurationError(f"health is not a JSON object of health records by entity: {error}") from error


def comma_separated(text: str) -> list[str]:
    """Split a comma-separated list of names. :raises argparse.ArgumentTypeError: a name is empty."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} contains an empty name: allowed are comma-separated names")
    return parts


_SHARED_ARGUMENTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "--pair": {"required": True, "help": "where the pair's settings are: env:NAME, file:PATH or airflow:CONN_ID"},
    "--ledger": {"required": True, "help": "folder of the ledger, or its URL"},
    "--run": {"required": True, "help": "name of this run in the ledger"},
    "--output": {"required": True, "help": "folder of the result, or its URL"},
    "--rate": {"type": float, "help": "messages per second over all tasks; default: no limit"},
    "--queues": {"type": comma_separated, "help": "paths of backlog queues, comma-separated; default: all"},
}


def add_arguments(parser: argparse.ArgumentParser, *names: str) -> None:
    """Declare arguments that several programs have."""
    for name in names:
        parser.add_argument(name, **_SHARED_ARGUMENTS[name])


def fail(program: str, error: object, *, status: int = 2) -> int:
    """Print what stopped the program, and return its exit status."""
    print(f"{program}: {printable(str(error))}", file=sys.stderr)  # noqa: T201  command-line output
    return status


def create_session(name: str) -> SparkSession:
    """Return the Spark session of a program, which ends with the Airflow task that submitted it, if one did.

    Speculation is off, because a speculative task would send twice.
    """
    end_without_task()
    return (
        SparkSession.builder.appName(name)
        .config("spark.speculation", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
