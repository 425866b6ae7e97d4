"""The parsed options of a write and of a read, validated before anything is sent or read. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from math import inf
from typing import Any, Final

from servicebus_pair.core import EntityHealth, PairSettings
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.pair import SIDES
from servicebus_pair.spark.base.credential_reference import REFERENCES, PairReference, check_reference
from servicebus_pair.spark.base.offsets import MAIN, PeekTarget, peek_targets
from servicebus_pair.spark.base.redaction import Redaction
from servicebus_pair.spark.datasource.option_table import (
    COLLECT,
    DEFAULT_IN_FLIGHT,
    EARLIEST,
    FAIL,
    LATEST,
    OPTIONS,
    PAIR_OPTIONS,
    PEEK,
    RECEIVE,
    SEND,
    Direction,
    parse_options,
)

_ERROR_TABLE: Final = "the folder to which rows are written that can never be sent"
_MAX_TRIGGER_DELAY: Final = 900.0
_HOSTS: Final = dict(zip(SIDES, ("primaryNamespace", "secondaryNamespace"), strict=True))


def check_credential(text: str) -> None:
    """Reject a credential given by value, without quoting it. :raises ConfigurationError: it is not a reference."""
    try:
        check_reference(text)
    except ConfigurationError as error:
        raise ConfigurationError(f"option credential: {error}") from None


@dataclass(frozen=True, slots=True)
class PairAccess:
    """A reference to the pair's settings, and overrides of its options. Contains no secret.

    :param overrides: values by their names in ``PairOptions``.
    """

    reference: PairReference
    overrides: tuple[tuple[str, Any], ...] = ()

    @classmethod
    def from_values(cls, values: Mapping[str, Any]) -> PairAccess:
        """Create from parsed options. :raises ConfigurationError: the credential is missing or invalid."""
        if "credential" not in values:
            raise ConfigurationError(f"option credential is missing: allowed are {REFERENCES}")
        check_credential(values["credential"])
        hosts = {side: values[name] for side, name in _HOSTS.items() if name in values}
        try:
            reference = PairReference.parse(values["credential"], hosts=hosts)
        except ConfigurationError as error:
            raise ConfigurationError(f"options credential, {', '.join(_HOSTS.values())}: {error}") from None
        return cls(reference, tuple((PAIR_OPTIONS[name][0], values[name]) for name in PAIR_OPTIONS if name in values))

    def resolve(self, redaction: Redaction) -> PairSettings:
        """Read the settings in this process. :raises ConfigurationError: see :meth:`PairReference.resolve`."""
        settings = self.reference.resolve(redaction)
        return replace(settings, options=replace(settings.options, **dict(self.overrides)))


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """The options of a write.

    :param entity: destination of rows without an ``entity`` value.
    :param run: name of this write in the ledger and the manifest.
    :param ledger: folder of the ledger, a path on the executors.
    :param manifest: file of the manifest, a path on the driver; for a stream, a folder.
    :param health: health records by entity path, known before the write.
    :param rate: messages per second of one task; ``None`` is unlimited.
    :param in_flight: maximum number of batches that one task sends concurrently.
    :param error_table: folder to which rows are written that can never be sent; ``None`` fails the write instead.
    :param sessions_in_order: the rows of each session are in one partition, in order.
    """

    access: PairAccess
    entity: str | None = None
    run: str | None = None
    ledger: str | None = None
    manifest: str | None = None
    health: Mapping[str, EntityHealth] = field(default_factory=dict)
    rate: float | None = None
    in_flight: int = DEFAULT_IN_FLIGHT
    error_table: str | None = None
    sessions_in_order: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> WriteOptions:
        """Parse options. :raises ConfigurationError: naming option, value (never a secret) and what is allowed."""
        values = parse_options(options, direction=Direction.WRITE)
        if values.get("action", SEND) != SEND or "requiresSession" in values:
            raise ConfigurationError(
                "option action is deadLetter, or requiresSession is given: they are for rows that a handler rejects, "
                "written in foreachBatch of a stream with mode=receive"
            )
        entities = values.get("entity", (None,))
        if len(entities) > 1:
            raise ConfigurationError(
                f"option entity is {', '.join(entities)}: a write takes one; for several, use the column entity"
            )
        return cls(
            access=PairAccess.from_values(values),
            entity=entities[0],
            run=values.get("run"),
            ledger=values.get("ledger"),
            manifest=values.get("manifest"),
            health=values.get("health", {}),
            rate=values.get("ratePerTask"),
            in_flight=values.get("maxBatchesInFlight", DEFAULT_IN_FLIGHT),
            error_table=_error_table(values),
            sessions_in_order=values.get("sessionsInOrder", False),
        )


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """The options of a read.

    :param secondary: read the secondary namespace instead of the primary.
    :param targets: what is read; one Spark partition each.
    :param start: offsets to start at, :data:`EARLIEST` or :data:`LATEST`.
    :param end: offsets to end at, or :data:`LATEST`: the end of the queue when the task starts.
    :param start_time: start at the first message that was enqueued then or later.
    :param end_time: end before the first message that was enqueued then or later.
    :param max_messages: per micro-batch of a stream; ``None`` is the default.
    :param min_messages: wait for so many before a micro-batch, at most ``max_delay`` seconds after the last one.
    :param max_bytes: of bodies, per micro-batch of a stream that receives; ``None`` is unlimited.
    :param receives: messages are received, and removed once they have landed.
    :param requires_session: what is received from requires sessions.
    :param tasks: maximum number of Spark partitions per queue.
    :param push_filters: take the filters of queries, in Spark sessions that push them.
    :param fail_on_data_loss: fail when a claimed message is gone.
    """

    access: PairAccess
    secondary: bool
    targets: tuple[PeekTarget, ...]
    start: str | Mapping[str, int] = EARLIEST
    end: str | Mapping[str, int] = LATEST
    start_time: datetime | None = None
    end_time: datetime | None = None
    max_messages: int | None = None
    min_messages: int | None = None
    max_delay: float = _MAX_TRIGGER_DELAY
    max_bytes: int | None = None
    receives: bool = False
    requires_session: bool = False
    tasks: int = 1
    push_filters: bool = False
    fail_on_data_loss: bool = True

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
        """Parse options. :raises ConfigurationError: naming option, value (never a secret) and what is allowed."""
        values = parse_options(options, direction=Direction.READ)
        if "entity" not in values:
            raise ConfigurationError(f"option entity is missing: allowed are {OPTIONS['entity'].allowed}")
        start, end = values.get("startingOffsets", EARLIEST), values.get("endingOffsets", LATEST)
        receives = values.get("mode", PEEK) == RECEIVE
        _check_mode(values, receives=receives, streaming=streaming)
        _check_range_options(values, start, end, streaming=streaming, receives=receives)
        return cls(
            access=PairAccess.from_values(values),
            secondary=values.get("namespace", SIDES[0]) == SIDES[1],
            targets=peek_targets(values["entity"], values.get("subQueue", (MAIN,)), values.get("sessionId", ())),
            start=start,
            end=end,
            start_time=values.get("startingTimestamp"),
            end_time=values.get("endingTimestamp"),
            max_messages=values.get("maxMessagesPerTrigger"),
            min_messages=values.get("minMessagesPerTrigger"),
            max_delay=values.get("maxTriggerDelay", _MAX_TRIGGER_DELAY),
            max_bytes=values.get("maxBytesPerTrigger"),
            receives=receives,
            requires_session=values.get("requiresSession", False),
            tasks=values.get("tasks", 1),
            push_filters=values.get("pushFilters", False),
            fail_on_data_loss=values.get("failOnDataLoss", True),
        )


def _error_table(values: Mapping[str, Any]) -> str | None:
    collects, table = values.get("onError", FAIL) == COLLECT, values.get("errorTable")
    if collects and table is None:
        raise ConfigurationError(f"option errorTable is missing: with onError=collect it is {_ERROR_TABLE}")
    if table is not None and not collects:
        raise ConfigurationError("option errorTable is given: it is for onError=collect")
    return None if table is None else str(table)


def _check_mode(values: Mapping[str, Any], *, receives: bool, streaming: bool) -> None:
    if not receives:
        for name in ("requiresSession", "maxBytesPerTrigger"):
            if name in values:
                raise ConfigurationError(f"option {name} is given: it is for mode=receive; remove the option")
        return
    if not streaming:
        raise ConfigurationError(
            "option mode is receive: allowed for a stream, which knows when a batch has landed; use readStream with "
            "trigger(availableNow=True), which ends like a batch"
        )
    if values.get("namespace", SIDES[0]) != SIDES[0]:
        raise ConfigurationError(
            "option namespace is secondary: with mode=receive allowed is primary; drain the backlog"
        )
    for name in ("startingOffsets", "startingTimestamp", "sessionId"):
        if name in values:
            raise ConfigurationError(
                f"option {name} is given: a stream that receives begins with the oldest message, of any session; "
                "remove the option"
            )
    if values.get("requiresSession", False) and "minMessagesPerTrigger" in values:
        raise ConfigurationError(
            "options requiresSession and minMessagesPerTrigger are both given: messages in sessions cannot be counted"
        )
    if values.get("requiresSession", False) and set(values.get("subQueue", (MAIN,))) != {MAIN}:
        raise ConfigurationError("options requiresSession and subQueue are both given: a sub-queue has no sessions")


def _check_range_options(
    values: Mapping[str, Any], start: object, end: object, *, streaming: bool, receives: bool
) -> None:
    if end == EARLIEST:
        raise ConfigurationError(f"option endingOffsets is {end!r}: allowed is {OPTIONS['endingOffsets'].allowed}")
    if not streaming and start == LATEST:
        raise ConfigurationError(f"option startingOffsets is {start!r}: allowed for a stream; a batch would be empty")
    for name in ("endingOffsets", "endingTimestamp"):
        if streaming and name in values:
            raise ConfigurationError(f"option {name} is given: a stream has no end; remove the option")
    _check_times(values)
    _check_sub_queues(values, streaming=streaming and not receives)
    for name in ("maxMessagesPerTrigger", "minMessagesPerTrigger", "maxTriggerDelay", "failOnDataLoss"):
        if not streaming and name in values:
            raise ConfigurationError(f"option {name} is given: it is for streams only; remove the option")


def _check_times(values: Mapping[str, Any]) -> None:
    for time, offsets in (("startingTimestamp", "startingOffsets"), ("endingTimestamp", "endingOffsets")):
        if time in values and offsets in values:
            raise ConfigurationError(f"options {time} and {offsets} are both given: remove one")
        if time in values and set(values.get("subQueue", (MAIN,))) != {MAIN}:
            raise ConfigurationError(
                f"options {time} and subQueue are both given: dead letters are not in the order of their times"
            )
    if "maxTriggerDelay" in values and "minMessagesPerTrigger" not in values:
        raise ConfigurationError("option maxTriggerDelay is given: it is for minMessagesPerTrigger")
    if values.get("minMessagesPerTrigger", 0) > values.get("maxMessagesPerTrigger", inf):
        raise ConfigurationError(
            "option minMessagesPerTrigger is above maxMessagesPerTrigger: no batch would be large enough"
        )


def _check_sub_queues(values: Mapping[str, Any], *, streaming: bool) -> None:
    """Reject streams of sub-queues, whose sequence numbers do not grow in order of arrival."""
    sub_queues = [each for each in values.get("subQueue", ()) if each != MAIN]
    if streaming and sub_queues and values.get("failOnDataLoss", True):
        raise ConfigurationError(
            f"option subQueue is {sub_queues[0]}: dead letters keep the sequence numbers of their queue, so a stream "
            "skips a message that is dead-lettered after a later one: use a batch read, or accept data loss with "
            "failOnDataLoss=false"
        )
