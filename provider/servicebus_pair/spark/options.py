"""The options of a write and of a read, checked together before anything is sent or looked at. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, Final

from servicebus_pair.core.configuration import SIDES, PairSettings
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.core.options import PairOptions
from servicebus_pair.spark.cursors import MAIN, Peekable, peekables
from servicebus_pair.spark.option_table import DEFAULT_IN_FLIGHT, EARLIEST, LATEST, OPTIONS, Use, parsed
from servicebus_pair.spark.redaction import Redaction
from servicebus_pair.spark.references import REFERENCES, PairReference, check_reference

__all__ = ["Access", "ReadOptions", "WriteOptions", "check_credential"]

_OF_PAIR: Final = {
    "backlogQueueCount": "backlog_queue_count",
    "failoverInterval": "failover_interval",
    "pingPrimaryInterval": "ping_primary_interval",
    "pingTimeout": "ping_timeout",
    "closeGrace": "close_grace",
    "serverBusyDelay": "server_busy_delay",
    "onQuotaExceeded": "on_quota_exceeded",
    "onEntityDisabled": "on_entity_disabled",
    "probe": "probe",
    "ordering": "ordering",
}
_HOSTS: Final = dict(zip(SIDES, ("primaryNamespace", "secondaryNamespace"), strict=True))


def check_credential(text: str) -> None:
    """Refuse what may be a secret itself, without quoting it. :raises ConfigurationError: it is no reference."""
    try:
        check_reference(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"option credential: {error}") from None


@dataclass(frozen=True, slots=True)
class Access:
    """How to come to a pair: a reference, and what is to differ from its settings. No secret.

    :param changes: options of the pair by their names in ``PairOptions``.
    """

    reference: PairReference
    changes: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Access:
        """Take it out of the options. :raises ConfigurationError: the credential is missing, or does not fit."""
        if "credential" not in values:
            raise ConfigurationError(f"option credential is missing: allowed are {REFERENCES}")
        check_credential(values["credential"])
        hosts = {side: values[name] for side, name in _HOSTS.items() if name in values}
        try:
            reference = PairReference.parse(values["credential"], hosts=hosts)
        except ConfigurationError as error:
            raise ConfigurationError(f"options credential, {', '.join(_HOSTS.values())}: {error}") from None
        changes = tuple((_OF_PAIR[name], value) for name, value in values.items() if name in _OF_PAIR)
        for name, value in values.items():
            if name in _OF_PAIR:
                _check_pair_option(name, value)
        return cls(reference, changes)

    def resolve(self, redaction: Redaction) -> PairSettings:
        """Read the settings, here. :raises ConfigurationError: as the reference does."""
        settings = self.reference.resolve(redaction)
        return replace(settings, options=replace(settings.options, **dict(self.changes)))


def _check_pair_option(name: str, value: Any) -> None:
    try:
        PairOptions(**{_OF_PAIR[name]: value})
    except ConfigurationError:
        shown = value.total_seconds() if isinstance(value, timedelta) else value
        raise ConfigurationError(f"option {name} is {shown!r}: allowed is {OPTIONS[name].allowed}") from None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write.

    :param entity: where rows go that do not say it themselves.
    :param run: what this write is called in the ledger and the manifest.
    :param ledger: folder of the ledger, as executors see it.
    :param manifest: file of the manifest, as the driver sees it; of a stream, a folder.
    :param health: what is known of entities before, by path.
    :param rate: messages per second of one task; ``None`` is as fast as it goes.
    :param in_flight: most batches of one task that are under way.
    """

    access: Access
    entity: str | None = None
    run: str | None = None
    ledger: str | None = None
    manifest: str | None = None
    health: Mapping[str, EntityHealth] = field(default_factory=dict)
    rate: float | None = None
    in_flight: int = DEFAULT_IN_FLIGHT

    @classmethod
    def of(cls, options: Mapping[str, str]) -> WriteOptions:
        """Read them. :raises ConfigurationError: naming the option, its value (never a secret) and what is allowed."""
        values = parsed(options, use=Use.WRITE)
        entities = values.get("entity", (None,))
        if len(entities) > 1:
            raise ConfigurationError(
                f"option entity is {', '.join(entities)}: a write has one; for several, give each row its own in the "
                "column entity"
            )
        return cls(
            access=Access.of(values),
            entity=entities[0],
            run=values.get("run"),
            ledger=values.get("ledger"),
            manifest=values.get("manifest"),
            health=values.get("health", {}),
            rate=values.get("ratePerTask"),
            in_flight=values.get("maxBatchesInFlight", DEFAULT_IN_FLIGHT),
        )


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read.

    :param secondary: look into the secondary namespace instead of the primary.
    :param peekables: what is looked into; each is read by a task of its own.
    :param start: offsets to begin at, :data:`EARLIEST` or :data:`LATEST`.
    :param end: offsets to end at, or :data:`LATEST`: what is there when a task begins.
    :param limit: most messages of one batch of a stream; ``None`` takes all.
    """

    access: Access
    secondary: bool
    peekables: tuple[Peekable, ...]
    start: str | Mapping[str, int] = EARLIEST
    end: str | Mapping[str, int] = LATEST
    limit: int | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """Read them. :raises ConfigurationError: naming the option, its value (never a secret) and what is allowed."""
        values = parsed(options, use=Use.READ)
        if "entity" not in values:
            raise ConfigurationError(f"option entity is missing: allowed are {OPTIONS['entity'].allowed}")
        start, end = values.get("startingOffsets", EARLIEST), values.get("endingOffsets", LATEST)
        _check_direction(values, start, end, streaming=streaming)
        return cls(
            access=Access.of(values),
            secondary=values.get("namespace", SIDES[0]) == SIDES[1],
            peekables=peekables(values["entity"], values.get("subQueue", (MAIN,)), values.get("sessionId", ())),
            start=start,
            end=end,
            limit=values.get("maxMessagesPerTrigger"),
        )


def _check_direction(values: Mapping[str, Any], start: object, end: object, *, streaming: bool) -> None:
    if end == EARLIEST:
        raise ConfigurationError(f"option endingOffsets is {end!r}: allowed is {OPTIONS['endingOffsets'].allowed}")
    if not streaming and start == LATEST:
        raise ConfigurationError(f"option startingOffsets is {start!r}: a batch would read nothing; a stream may")
    if streaming and "endingOffsets" in values:
        raise ConfigurationError("option endingOffsets is given: a stream has no end; leave it out")
    _check_sub_queues(values, streaming=streaming)
    for name in ("maxMessagesPerTrigger", "failOnDataLoss"):
        if not streaming and name in values:
            raise ConfigurationError(f"option {name} is given: it is for a stream, and this is none; leave it out")


def _check_sub_queues(values: Mapping[str, Any], *, streaming: bool) -> None:
    """Refuse to follow what is not numbered in the order in which it comes: messages would be passed over."""
    dead = [each for each in values.get("subQueue", ()) if each != MAIN]
    if streaming and dead and values.get("failOnDataLoss", True):
        raise ConfigurationError(
            f"option subQueue is {dead[0]}: dead letters keep the numbers of their queue, so a stream passes "
            "over what is dead-lettered after a later message: read dead letters by batches, or accept that with "
            "failOnDataLoss=false"
        )
