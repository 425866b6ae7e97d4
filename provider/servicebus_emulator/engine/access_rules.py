"""Shared access rules: a name, two keys, and the rights that a token made with one of the keys carries.

As in Microsoft's "Service Bus access control with Shared Access Signatures": rules belong to a namespace or to a
queue or topic; a subscription has none of its own and goes by its topic's. Manage includes Send and Listen.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from servicebus_emulator.engine.descriptions import AccessRight, AuthorizationRule, DescriptionError

__all__ = [
    "ALL_RIGHTS",
    "DEFAULT_KEY",
    "ROOT_RULE",
    "AccessRule",
    "check_rule",
    "check_rules",
    "new_key",
    "rights_of",
    "stored",
]

ROOT_RULE: Final = "RootManageSharedAccessKey"
"""The rule that every namespace begins with, and keeps."""

DEFAULT_KEY: Final = "SAS_KEY_VALUE"
"""The key of that rule when none is given: well known, as in Microsoft's emulator, and no secret."""

ALL_RIGHTS: Final = frozenset(AccessRight)

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,254}[A-Za-z0-9])?")
_NAME_RULE: Final = "1 to 256 letters, digits, '.', '-' and '_', beginning and ending with a letter or digit"
_KEY_BYTES: Final = 32
_MAX_KEY: Final = 256
_KEY_RULE: Final = f"1 to {_MAX_KEY} printable characters"
_MOST_RULES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """A shared access rule; its keys never appear in ``repr``.

    :param name: compared without case.
    :param rights: what it permits; Manage brings the other two with it.
    :param created: when it was made (UTC, aware).
    :param modified: when its rights or keys last changed.
    :raises DescriptionError: naming the field and what is allowed; a refused key is not repeated.
    """

    name: str
    rights: frozenset[AccessRight]
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    created: datetime
    modified: datetime

    def __post_init__(self) -> None:
        check_rule(self.name, rights=self.rights, primary_key=self.primary_key, secondary_key=self.secondary_key)
        object.__setattr__(self, "rights", rights_of(self.rights))

    @property
    def keys(self) -> tuple[str, str]:
        """Both keys, the primary one first."""
        return self.primary_key, self.secondary_key

    def as_authorization(self) -> AuthorizationRule:
        """Return the rule as entities are described with it."""
        return AuthorizationRule(
            rights=tuple(right for right in AccessRight if right in self.rights),
            created_time=self.created,
            modified_time=self.modified,
            key_name=self.name,
            primary_key=self.primary_key,
            secondary_key=self.secondary_key,
        )


def check_rule(
    name: str, *, rights: Collection[AccessRight], primary_key: str | None, secondary_key: str | None
) -> None:
    """Check what a rule is made of.

    :param primary_key: None = it is yet to be made; so with the other.
    :raises DescriptionError: naming the field and what is allowed; a refused key is not repeated.
    """
    if _NAME.fullmatch(name) is None:
        raise DescriptionError("KeyName", value=f"of {len(name)} characters", allowed=_NAME_RULE)
    if len(rights) == 0:
        raise DescriptionError("Rights", value="none", allowed="at least one of Send, Listen, Manage")
    for field_name, key in (("PrimaryKey", primary_key), ("SecondaryKey", secondary_key)):
        if key is not None and not (0 < len(key) <= _MAX_KEY and key.isprintable()):
            raise DescriptionError(field_name, value=f"of {len(key)} characters", allowed=_KEY_RULE)


def rights_of(rights: Iterable[AccessRight]) -> frozenset[AccessRight]:
    """Return the rights together with those that they include."""
    given = frozenset(rights)
    return ALL_RIGHTS if AccessRight.MANAGE in given else given


def new_key(random_bytes: Callable[[int], bytes]) -> str:
    """Return a new key: 256 bits in Base64, as the service makes them."""
    return b64encode(random_bytes(_KEY_BYTES)).decode()


def stored(rule: AuthorizationRule) -> AccessRule | None:
    """Read a rule of an entity's description; None when it lacks what a token could be checked with.

    Such rules are in data files of older versions: they are kept and shown, and let nobody in.
    """
    if rule.key_name is None or rule.primary_key is None or rule.secondary_key is None or len(rule.rights) == 0:
        return None
    if rule.created_time is None or rule.modified_time is None:
        return None
    try:
        return AccessRule(
            name=rule.key_name,
            rights=frozenset(rule.rights),
            primary_key=rule.primary_key,
            secondary_key=rule.secondary_key,
            created=rule.created_time,
            modified=rule.modified_time,
        )
    except DescriptionError:
        return None


def check_rules(names: Iterable[str]) -> None:
    """Check the rules of one namespace, queue or topic by their names (service quota: 12 rules).

    :raises DescriptionError: when a name is there twice, or there are too many.
    """
    folded = [name.casefold() for name in names]
    if len(set(folded)) != len(folded):
        raise DescriptionError("AuthorizationRules", value="a rule name twice", allowed="each rule name once")
    if len(folded) > _MOST_RULES:
        raise DescriptionError("AuthorizationRules", value=f"{len(folded)} rules", allowed=f"at most {_MOST_RULES}")
