"""Command-line arguments that publishing programs share, and the session they run in."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.core.manifest import PublishManifest
from servicebus_pair.spark.files import check_writable
from servicebus_pair.spark.publishing import publish

__all__ = ["PLACES", "PublishArguments", "names", "session"]

PLACES: Final = "env:NAME, file:PATH or airflow:CONN_ID"


@dataclass(frozen=True, slots=True)
class PublishArguments:
    """Where and how a program publishes.

    :param rate: messages per second over all tasks; ``None`` is as fast as it goes.
    :param manifest: file that the manifest is written to.
    :param health: what is known of entities before, by path.
    """

    pair: str
    ledger: str
    run: str
    rate: float | None
    manifest: str | None
    health: dict[str, EntityHealth]

    @staticmethod
    def add_to(parser: argparse.ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("--pair", required=True, help=f"where the pair's settings are: {PLACES}")
        parser.add_argument("--ledger", required=True, help="folder of the ledger")
        parser.add_argument("--run", required=True, help="what this run is called in the ledger")
        parser.add_argument("--rate", type=float, help="messages per second over all tasks; default: no limit")
        parser.add_argument("--manifest", help="file that the manifest is written to, as JSON")
        parser.add_argument("--health", default="{}", help="JSON: health records by entity")

    @classmethod
    def of(cls, given: argparse.Namespace) -> PublishArguments:
        """Take the arguments out of what was parsed. :raises ConfigurationError: the health is not valid."""
        health = _read_health(given.health)
        return cls(given.pair, given.ledger, given.run, given.rate, given.manifest, health)

    def publish(self, df: DataFrame, *, entity: str | None = None, **notes: Any) -> PublishManifest:
        """Publish ``df`` and write the manifest, with ``notes`` at its top level.

        :param entity: where rows go that do not say it themselves.
        :raises ConfigurationError: as ``publish``; or the manifest cannot be written; nothing was sent.
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
        )
        if self.manifest is not None:
            manifest.write(self.manifest, **notes)
        return manifest


def _read_health(text: str) -> dict[str, EntityHealth]:
    try:
        return {entity: EntityHealth.from_json(value) for entity, value in json.loads(text).items()}
    except (ValueError, AttributeError) as error:
        raise ConfigurationError(f"health is not a JSON object of health records by entity: {error}") from error


def names(text: str) -> list[str]:
    """Read names separated by commas. :raises argparse.ArgumentTypeError: one is empty."""
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise argparse.ArgumentTypeError(f"{text!r} holds an empty name: allowed are names with commas between them")
    return parts


def session(name: str) -> SparkSession:
    """Answer the session of the program; speculation is off, since a speculative task sends twice."""
    return (
        SparkSession.builder.appName(name)
        .config("spark.speculation", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .getOrCreate()
    )
