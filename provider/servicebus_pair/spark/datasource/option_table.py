"""The table of the data source's options: names, directions, allowed values; suggestions for unknown names. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from difflib import get_close_matches
from enum import Flag, auto
from math import inf
from typing import Any, Final

from servicebus_pair.core import EntityHealth
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.model import OPTION_CHECKS, boolean, choice, integer, message_rate, no_secret, non_empty_text
from servicebus_pair.core.pair import SIDES
from servicebus_pair.spark.base.credential_reference import REFERENCES
from servicebus_pair.spark.base.offsets import MAIN, SUB_QUEUES
from servicebus_pair.spark.base.shared_paths import absolute_path, shared_location

DEFAULT_IN_FLIGHT: Final = 4
COLLECT: Final = "collect"
DEAD_LETTER_ACTION: Final = "deadLetter"
EARLIEST: Final = "earliest"
FAIL: Final = "fail"
LATEST: Final = "latest"
PEEK: Final = "peek"
RECEIVE: Final = "receive"
SEND: Final = "send"


class Direction(Flag):
    """Whether an option applies to writes, reads or both."""

    WRITE = auto()
    READ = auto()
    BOTH = WRITE | READ


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    :param allowed: allowed values, for error messages.
    :param parser: converts the text to the value; raises ``ValueError`` for a value that is not allowed.
    :param default: for the documentation; empty for none.
    :param secret: the text may be a secret given by mistake, so errors do not quote it.
    """

    name: str
    direction: Direction
    allowed: str
    parser: Callable[[str, str], Any]
    default: str = ""
    secret: bool = False

    def parse(self, text: str) -> Any:
        """Parse ``text``. :raises ConfigurationError: naming the option, the value and what is allowed."""
        if not self.secret:
            no_secret(f"option {self.name}", text, belongs=f"where the option credential refers to: {REFERENCES}")
        try:
            return self.parser(self.name, text)
        except (ValueError, TypeError, AttributeError, OverflowError, KeyError):
            # A URL may hold a password, before its host or in its query.
            quoted = "not allowed" if self.secret or not {"@", "?"}.isdisjoint(text) else repr(text)
            raise ConfigurationError(f"option {self.name} is {quoted}: allowed is {self.allowed}") from None


def _path(name: str, text: str) -> str:
    return absolute_path(non_empty_text(name, text))


def _location(name: str, text: str) -> str:
    return shared_location(non_empty_text(name, text), what=f"option {name}")


def _list(_name: str, text: str) -> tuple[str, ...]:
    parts = tuple(part.strip() for part in text.split(","))
    if not all(parts) or len({part.casefold() for part in parts}) < len(parts):
        raise ValueError
    return parts


def _entities(name: str, text: str) -> tuple[str, ...]:
    return _list(name, non_empty_text(name, text))


def _sub_queues(name: str, text: str) -> tuple[str, ...]:
    return tuple(choice(*SUB_QUEUES)(name, part) for part in _list(name, text))


def _load(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError from None


def _health(_name: str, text: str) -> dict[str, EntityHealth]:
    return {entity: EntityHealth.from_json(value) for entity, value in _load(text).items()}


def _offsets(_name: str, text: str) -> str | dict[str, int]:
    if text in {EARLIEST, LATEST}:
        return text
    offsets = _load(text)
    if not all(type(number) is int and number >= 1 for number in offsets.values()):
        raise ValueError
    return dict(offsets)


def _time(_name: str, text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        raise ValueError
    return moment


def _seconds(_name: str, text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < inf:
        raise ValueError
    return seconds


_WRITE, _READ, _BOTH = Direction.WRITE, Direction.READ, Direction.BOTH
_TIME: Final = "a time with its offset, such as 2026-11-20T08:00:00Z"
_OFFSETS: Final = 'and {"entity path": sequence number from 1, ...}'
# Overrides of the pair's settings: field of ``PairOptions``, and allowed values, by option.
PAIR_OPTIONS: Final = {
    "backlogQueueCount": ("backlog_queue_count", "a whole number from 1"),
    "failoverInterval": ("failover_interval", "seconds, 0 to 3600"),
    "pingPrimaryInterval": ("ping_primary_interval", "seconds, 1 to 1800"),
    "pingTimeout": ("ping_timeout", "seconds above 0"),
    "closeGrace": ("close_grace", "seconds from 0"),
    "serverBusyDelay": ("server_busy_delay", "seconds from 0"),
    "attemptTimeout": ("attempt_timeout", "seconds from 0.001"),
    "healthRefresh": ("health_refresh", "seconds from 0.001"),
    "maxIdleConnections": ("max_idle_connections", "a whole number from 1"),
    "onQuotaExceeded": ("on_quota_exceeded", "raise and fail_over"),
    "onEntityDisabled": ("on_entity_disabled", "raise and fail_over"),
    "probe": ("probe", "ping and link"),
    "ordering": ("ordering", "none and session"),
    "spool": ("spool", "an absolute path or a URL, such as s3://bucket/spool"),
    "spoolMaxBytes": ("spool_max_bytes", "a whole number from 1"),
    "spoolMaxAge": ("spool_max_age", "seconds from 1"),
}
_TABLE: Final = (
    Option("credential", _BOTH, REFERENCES, non_empty_text, secret=True),
    Option("primaryNamespace", _BOTH, "host of the primary, with an identity as credential", non_empty_text),
    Option("secondaryNamespace", _BOTH, "host of the secondary, with an identity as credential", non_empty_text),
    Option("entity", _BOTH, "paths of queues, topics or subscriptions", _entities),
    Option("action", _WRITE, "send and deadLetter", choice(SEND, DEAD_LETTER_ACTION), SEND),
    Option("run", _WRITE, "a name", non_empty_text, "generated"),
    Option("ledger", _WRITE, "path or URL of a folder", _location),
    Option("manifest", _WRITE, "path of a file, not a URL; streaming, of a folder", _path),
    Option("health", _WRITE, "JSON: health records by entity", _health, "{}"),
    Option("ratePerTask", _WRITE, "a number of messages per second above 0", message_rate),
    Option("maxBatchesInFlight", _WRITE, "a whole number from 1", integer(1), str(DEFAULT_IN_FLIGHT)),
    Option("onError", _WRITE, "fail and collect", choice(FAIL, COLLECT), FAIL),
    Option("errorTable", _WRITE, "path or URL of a folder", _location),
    Option("sessionsInOrder", _WRITE, "true and false", boolean, "false"),
    Option("namespace", _READ, "primary and secondary", choice(*SIDES), SIDES[0]),
    Option("subQueue", _READ, "main, deadLetter and transferDeadLetter", _sub_queues, MAIN),
    Option("sessionId", _READ, "ids of sessions", _list),
    Option("startingOffsets", _READ, f"earliest, latest (streaming) {_OFFSETS}", _offsets, EARLIEST),
    Option("endingOffsets", _READ, f"latest {_OFFSETS}", _offsets, LATEST),
    Option("startingTimestamp", _READ, _TIME, _time),
    Option("endingTimestamp", _READ, _TIME, _time),
    Option("mode", _READ, "peek and receive", choice(PEEK, RECEIVE), PEEK),
    Option("requiresSession", _BOTH, "true and false", boolean, "false"),
    Option("pushFilters", _READ, "true and false", boolean, "false"),
    Option("tasks", _READ, "a whole number from 1", integer(1), "1"),
    Option("maxMessagesPerTrigger", _READ, "a whole number from 1", integer(1)),
    Option("minMessagesPerTrigger", _READ, "a whole number from 1", integer(1)),
    Option("maxTriggerDelay", _READ, "seconds above 0", _seconds, "900"),
    Option("maxBytesPerTrigger", _READ, "a whole number from 1", integer(1)),
    Option("failOnDataLoss", _READ, "true and false", boolean, "true"),
    *(Option(name, _WRITE, allowed, OPTION_CHECKS[field]) for name, (field, allowed) in PAIR_OPTIONS.items()),
)
OPTIONS: Final[Mapping[str, Option]] = {option.name: option for option in _TABLE}
# Names that Spark's load and save use, and that users of other data sources and of the SDK try.
_ALIASES: Final = {
    **dict.fromkeys(("path", "paths", "queue", "queuename", "topic", "topicname", "subscribe"), "entity"),
    **dict.fromkeys(("connectionstring", "connection", "secret"), "credential"),
    **dict.fromkeys(("maxoffsetspertrigger", "maxeventspertrigger"), "maxMessagesPerTrigger"),
    "minoffsetspertrigger": "minMessagesPerTrigger",
    "startingposition": "startingOffsets",
    "endingposition": "endingOffsets",
}
# Spark adds these to the options of a stream, and of a table that SQL creates.
_SPARK_OPTIONS: Final = frozenset({"checkpointlocation", "queryname", "owner", "provider"})
_TABLE_OPTION: Final = "option."


_NO_OPTIONS: Final = (
    "no option is given: credential and entity are required. Spark passes none of a table's options to a Python data "
    "source: give them in the statement, as in SELECT ... FROM name WITH ('credential' = ..., 'entity' = ...) or "
    "INSERT INTO name WITH (...), or read a view: CREATE TEMPORARY VIEW name USING servicebus OPTIONS (...)"
)


def parse_options(options: Mapping[str, str], *, direction: Direction) -> dict[str, Any]:
    """Return the values of the given options by name.

    :param options: as Spark passes them, with names in any case.
    :raises ConfigurationError: there is no option, or one is unknown, is for the other direction, or has a value that
        is not allowed.
    """
    if not options:
        raise ConfigurationError(_NO_OPTIONS)
    known = {option.name.casefold(): option for option in OPTIONS.values()}
    values: dict[str, Any] = {}
    for name, text in options.items():
        folded = name.casefold()
        if folded in _SPARK_OPTIONS or folded.startswith(_TABLE_OPTION):
            continue
        option = known.get(folded)
        allowed = [each.name for each in OPTIONS.values() if direction in each.direction]
        if option is None:
            raise ConfigurationError(unknown_name_message("option", name, allowed=allowed, aliases=_ALIASES))
        if direction not in option.direction:
            purpose = "reading" if direction is Direction.READ else "writing"
            raise ConfigurationError(f"option {option.name} is not for {purpose}: allowed are {', '.join(allowed)}")
        values[option.name] = option.parse(text)
    return values


_MIN_SIMILARITY: Final = 0.72
# Of a secret in place of a name Spark leaves the lower case only, which has no known shape; all are longer than this.
_MAX_QUOTED: Final = 32


def unknown_name_message(kind: str, given: str, *, allowed: Iterable[str], aliases: Mapping[str, str]) -> str:
    """Return an error message for an unknown name, with a "did you mean" suggestion and the allowed names.

    :param kind: such as ``option``.
    :param aliases: allowed names by their normalized names in other programs.
    """
    names = tuple(allowed)
    by_normalized = {_normalize(name): name for name in names}
    normalized = _normalize(given)
    suggestion = aliases.get(normalized)
    if suggestion is None:
        matches = get_close_matches(normalized, by_normalized, n=1, cutoff=_MIN_SIMILARITY)
        suggestion = by_normalized[matches[0]] if matches else None
    hint = "" if suggestion not in names else f"did you mean {suggestion}? "
    named = f"{kind} {given}" if len(given) <= _MAX_QUOTED else f"{kind} with a name of {len(given)} characters"
    return f"{named} is unknown: {hint}allowed are {', '.join(names)}"


def _normalize(name: str) -> str:
    """Remove case and separators: ``rate_per_task`` equals ``ratePerTask``."""
    return "".join(character for character in name.casefold() if character.isalnum())
