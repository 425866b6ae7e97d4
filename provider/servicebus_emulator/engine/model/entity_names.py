"""Naming rules of namespaces, entities, subscriptions and rules, and the error of an invalid description."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

NAMESPACE_NAMES: Final = "1 to 50 letters, digits and hyphens, a letter first"
"""The rule for names of namespaces; the service requires at least 6 characters."""

NOT_IN_XML: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Matches a character that XML, and so the administration API, cannot represent."""

_NAMESPACE_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,49}")
_MAX_PATH: Final = 260
_MAX_NAME: Final = 50
_PATH_RULE: Final = (
    "1 to 260 characters without @ ? # * \\, control characters or marks of the direction of writing; segments"
    " separated by single '/', none beginning with '$', none of them 'subscriptions'"
)
_NAME_RULE: Final = (
    "1 to 50 characters without / @ ? # * \\, control characters or marks of the direction of writing, not beginning"
    " with '$'"
)
# Marks of the direction of writing, and line ends of Unicode: a name would be shown as another one, or as two.
_FORBIDDEN: Final = re.compile(r"[@?#*\\\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class DescriptionError(ValueError):
    """A description has an invalid value.

    :ivar field: the name of the invalid field.
    :ivar value: the invalid value.
    :ivar allowed: the allowed values.
    """

    def __init__(self, field: str, *, value: object, allowed: str) -> None:
        super().__init__(f"{field} is {value!r}; allowed: {allowed}")
        self.field = field
        self.value = value
        self.allowed = allowed


def check_entity_path(field: str, *, value: str) -> None:
    """Check the path of a queue or topic (service quota: 260 characters).

    :param field: the field name to report.
    :raises DescriptionError: when `value` is not a valid path.
    """
    segments = value.split("/")
    if (
        len(value) > _MAX_PATH
        or _FORBIDDEN.search(value) is not None
        or any(segment.strip() == "" or segment.startswith("$") for segment in segments)
        or "subscriptions" in (segment.casefold() for segment in segments)
    ):
        raise DescriptionError(field, value=value[: _MAX_PATH + 1], allowed=_PATH_RULE)


def check_name(field: str, *, value: str) -> None:
    """Check the name of a subscription or rule (service quota: 50 characters).

    :param field: the field name to report.
    :raises DescriptionError: when `value` is not a valid name.
    """
    if (
        value.strip() == ""
        or len(value) > _MAX_NAME
        or value.startswith("$")
        or "/" in value
        or _FORBIDDEN.search(value) is not None
    ):
        raise DescriptionError(field, value=value[: _MAX_NAME + 1], allowed=_NAME_RULE)


def entity_path_of(address: str) -> str:
    """Return the entity path of a forwarding address: a bare path, or a URL such as ``sb://host/path``."""
    return urlsplit(address).path.strip("/") if "://" in address else address.strip("/")


def is_namespace_name(name: str) -> bool:
    """Return whether a namespace may have a name."""
    return _NAMESPACE_NAME.fullmatch(name) is not None
