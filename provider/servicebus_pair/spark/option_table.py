"""The table of the data source's options: names, what each is for, what it may be. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import Flag, auto
from typing import Any, Final

from servicebus_pair.core.configuration import SIDES
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.core.health import EntityHealth
from servicebus_pair.spark.cursors import MAIN, SUB_QUEUES
from servicebus_pair.spark.likeness import unknown
from servicebus_pair.spark.mounts import absolute
from servicebus_pair.spark.references import REFERENCES

__all__ = ["DEFAULT_IN_FLIGHT", "EARLIEST", "LATEST", "OPTIONS", "Option", "Use", "parsed"]

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
        except (ValueError, TypeError, AttributeError, OverflowError, KeyError):
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


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


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
    Option("failOnDataLoss", _READ, "true and false", _boolean, "true"),
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
