"""The options of the data source: one table, read and checked before anything is sent or looked at. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Flag, auto
from typing import Any, Final

from servicebus_pair.core.configuration import SIDES, PairSettings
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.core.options import PairOptions
from servicebus_pair.spark.cursors import MAIN, SUB_QUEUES, Peekable, peekables
from servicebus_pair.spark.likeness import unknown
from servicebus_pair.spark.mounts import absolute
from servicebus_pair.spark.redaction import Redaction
from servicebus_pair.spark.references import REFERENCES, PairReference, check_reference

__all__ = [
    "EARLIEST",
    "LATEST",
    "OPTIONS",
    "Access",
    "Option",
    "ReadOptions",
    "Use",
    "WriteOptions",
    "check_credential",
    "parsed",
]

DEFAULT_IN_FLIGHT: Final = 4
EARLIEST: Final = "earliest"
LATEST: Final = "latest"


class Use(Flag):
    """What an option is for."""

    WRITE = auto()
    READ = auto()
    BOTH = WRITE | READ


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    :param default: as the documentation says it; empty for none.
    :param allowed: what it may be, as errors say it.
    :param read: makes the value of the text. Raises ``ValueError`` for what is not allowed.
    :param secret: the text may be a secret given by mistake, so errors do not quote it.
    """

    name: str
    use: Use
    allowed: str
    read: Callable[[str], Any] = str
    default: str = ""
    secret: bool = False

    def value(self, text: str) -> Any:
        """Read ``text``. :raises ConfigurationError: naming the option, the value and what is allowed."""
        try:
            return self.read(text)
        except (ValueError, TypeError, AttributeError, OverflowError):
            shown = "not allowed" if self.secret else repr(text)
            raise ConfigurationError(f"option {self.name} is {shown}: allowed is {self.allowed}") from None


def _text(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text


def _path(text: str) -> str:
    return absolute(_text(text))


def _list(text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts) or len({part.casefold() for part in parts}) < len(parts):
        raise ValueError
    return parts


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError
    return number


def _rate(text: str) -> float:
    number = float(text)
    if not 0 < number < float("inf"):
        raise ValueError
    return number


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=float(text))


def _choice(*allowed: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in allowed:
            raise ValueError
        return text

    return read


def _choices(*allowed: str) -> Callable[[str], tuple[str, ...]]:
    def read(text: str) -> tuple[str, ...]:
        parts = _list(text)
        if not set(parts) <= set(allowed):
            raise ValueError
        return parts

    return read


def _health(text: str) -> dict[str, EntityHealth]:
    return {entity: EntityHealth.from_json(value) for entity, value in json.loads(text).items()}


def _offsets(text: str) -> str | dict[str, int]:
    if text in {EARLIEST, LATEST}:
        return text
    offsets = json.loads(text)
    if not all(type(number) is int and number >= 1 for number in offsets.values()):
        raise ValueError
    return dict(offsets)


_WRITE, _READ, _BOTH = Use.WRITE, Use.READ, Use.BOTH
_OFFSETS: Final = 'and {"place": sequence number from 1, ...}'
_TABLE: Final = (
    Option("credential", _BOTH, REFERENCES, _text, secret=True),
    Option("primaryNamespace", _BOTH, "host of the primary, with an identity as credential", _text),
    Option("secondaryNamespace", _BOTH, "host of the secondary, with an identity as credential", _text),
    Option("entity", _BOTH, "paths of queues, topics or subscriptions", _list),
    Option("run", _WRITE, "a name", _text, "made up"),
    Option("ledger", _WRITE, "path of a folder, not a URL", _path),
    Option("manifest", _WRITE, "path of a file, not a URL; streaming, of a folder", _path),
    Option("health", _WRITE, "JSON: health records by entity", _health, "{}"),
    Option("ratePerTask", _WRITE, "a number of messages per second above 0", _rate),
    Option("maxBatchesInFlight", _WRITE, "a whole number from 1", _count, str(DEFAULT_IN_FLIGHT)),
    Option("namespace", _READ, "primary and secondary", _choice(*SIDES), SIDES[0]),
    Option(
        "subQueue",
        _READ,
        "main, deadLetter and transferDeadLetter",
        _choices(*SUB_QUEUES),
        MAIN,
    ),
    Option("sessionId", _READ, "ids of sessions", _list),
    Option("startingOffsets", _READ, f"earliest, latest (streaming) {_OFFSETS}", _offsets, EARLIEST),
    Option("endingOffsets", _READ, f"latest {_OFFSETS}", _offsets, LATEST),
    Option("maxMessagesPerTrigger", _READ, "a whole number from 1", _count),
    Option("backlogQueueCount", _WRITE, "a whole number from 1", int),
    Option("failoverInterval", _WRITE, "seconds, 0 to 3600", _seconds),
    Option("pingPrimaryInterval", _WRITE, "seconds, 1 to 1800", _seconds),
    Option("pingTimeout", _WRITE, "seconds above 0", _seconds),
    Option("closeGrace", _WRITE, "seconds from 0", _seconds),
    Option("serverBusyDelay", _WRITE, "seconds from 0", _seconds),
    Option("onQuotaExceeded", _WRITE, "raise and fail_over"),
    Option("onEntityDisabled", _WRITE, "raise and fail_over"),
    Option("probe", _WRITE, "ping and link"),
    Option("ordering", _WRITE, "none and session"),
)
OPTIONS: Final[Mapping[str, Option]] = {option.name: option for option in _TABLE}
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
# What Spark makes of the argument of load and save, and what users of other sources and of the SDK look for.
_ELSEWHERE: Final = {
    **dict.fromkeys(("path", "paths", "queue", "queuename", "topic", "topicname", "subscribe"), "entity"),
    **dict.fromkeys(("connectionstring", "connection", "secret"), "credential"),
    **dict.fromkeys(("maxoffsetspertrigger", "maxeventspertrigger"), "maxMessagesPerTrigger"),
    "startingposition": "startingOffsets",
    "endingposition": "endingOffsets",
}
# What Spark itself puts among a stream's options.
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
_HOSTS: Final = dict(zip(SIDES, ("primaryNamespace", "secondaryNamespace"), strict=True))


def parsed(options: Mapping[str, str], *, use: Use) -> dict[str, Any]:
    """Read the options that are given, by name.

    :param options: as Spark gives them: names in any case.
    :raises ConfigurationError: one is unknown, is for the other direction, or has a value that is not allowed.
    """
    known = {option.name.casefold(): option for option in OPTIONS.values()}
    values: dict[str, Any] = {}
    for name, text in options.items():
        folded = name.casefold()
        if folded in _OF_SPARK:
            continue
        option = known.get(folded)
        allowed = [each.name for each in OPTIONS.values() if use in each.use]
        if option is None:
            raise ConfigurationError(unknown("option", name, allowed=allowed, elsewhere=_ELSEWHERE))
        if use not in option.use:
            direction = "reading" if use is Use.READ else "writing"
            raise ConfigurationError(f"option {option.name} is not for {direction}: allowed are {', '.join(allowed)}")
        values[option.name] = option.value(text)
    return values


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
    if not streaming and "maxMessagesPerTrigger" in values:
        raise ConfigurationError("option maxMessagesPerTrigger is given: only a stream has triggers; leave it out")
