"""Shared access policies: a name, two keys, and the rights of tokens signed with either key.

See Microsoft's "Service Bus access control with Shared Access Signatures". Policies belong to a namespace, a queue or
a topic; a subscription uses those of its topic. Manage includes Send and Listen. The administration API calls a policy
an authorization rule.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from servicebus_emulator.engine.model.descriptions import AccessRight, AuthorizationRule
from servicebus_emulator.engine.model.entity_names import DescriptionError

ROOT_POLICY: Final = "RootManageSharedAccessKey"
"""The policy that every namespace has from the start and that cannot be deleted."""

DEFAULT_KEY: Final = "SAS_KEY_VALUE"
"""The default key of the root policy: publicly known, as in Microsoft's emulator."""

ALL_RIGHTS: Final = frozenset(AccessRight)

_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,254}[A-Za-z0-9])?")
_NAME_RULE: Final = "1 to 256 letters, digits, '.', '-' and '_', beginning and ending with a letter or digit"
_KEY_BYTES: Final = 32
_MAX_KEY: Final = 256
_KEY_RULE: Final = f"1 to {_MAX_KEY} printable characters"
_MAX_POLICIES: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedAccessPolicy:
    """A shared access policy. Its keys do not appear in ``repr``.

    :param name: case-insensitive.
    :param rights: Manage implies the other two.
    :param ordered_rights: the same in the order in which they were given, as the service returns them.
    :param created: creation time (UTC, aware).
    :param modified: when the rights or keys last changed (UTC, aware).
    :raises DescriptionError: when a field has an invalid value. The message does not contain keys.
    """

    name: str
    rights: frozenset[AccessRight]
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    created: datetime
    modified: datetime
    ordered_rights: tuple[AccessRight, ...] = ()

    def __post_init__(self) -> None:
        check_policy(self.name, rights=self.rights, primary_key=self.primary_key, secondary_key=self.secondary_key)
        object.__setattr__(self, "rights", expand_rights(self.rights))
        ordered = dict.fromkeys((*self.ordered_rights, *AccessRight))
        object.__setattr__(self, "ordered_rights", tuple(right for right in ordered if right in self.rights))

    @property
    def keys(self) -> tuple[str, str]:
        """The primary and the secondary key."""
        return self.primary_key, self.secondary_key

    def to_rule(self) -> AuthorizationRule:
        """Return the policy as an authorization rule of an entity description."""
        return AuthorizationRule(
            rights=self.ordered_rights,
            created_time=self.created,
            modified_time=self.modified,
            key_name=self.name,
            primary_key=self.primary_key,
            secondary_key=self.secondary_key,
        )


def check_policy(
    name: str, *, rights: Collection[AccessRight], primary_key: str | None, secondary_key: str | None
) -> None:
    """Check the fields of a policy.

    :param primary_key: None = not generated yet. The same applies to `secondary_key`.
    :raises DescriptionError: when a field has an invalid value. The message does not contain keys.
    """
    if _NAME.fullmatch(name) is None:
        raise DescriptionError("KeyName", value=f"of {len(name)} characters", allowed=_NAME_RULE)
    if len(rights) == 0:
        raise DescriptionError("Rights", value="none", allowed="at least one of Send, Listen, Manage")
    for field_name, key in (("PrimaryKey", primary_key), ("SecondaryKey", secondary_key)):
        if key is not None and not (0 < len(key) <= _MAX_KEY and key.isprintable()):
            raise DescriptionError(field_name, value=f"of {len(key)} characters", allowed=_KEY_RULE)


def check_policy_names(names: Iterable[str]) -> None:
    """Check the policy names of one namespace, queue or topic (service quota: 12 policies).

    :raises DescriptionError: when a name occurs twice or there are too many.
    """
    folded = [name.casefold() for name in names]
    if len(set(folded)) != len(folded):
        raise DescriptionError("AuthorizationRules", value="a rule name twice", allowed="each rule name once")
    if len(folded) > _MAX_POLICIES:
        raise DescriptionError("AuthorizationRules", value=f"{len(folded)} rules", allowed=f"at most {_MAX_POLICIES}")


def expand_rights(rights: Iterable[AccessRight]) -> frozenset[AccessRight]:
    """Return the rights including those that they imply."""
    given = frozenset(rights)
    return ALL_RIGHTS if AccessRight.MANAGE in given else given


def new_key(random_bytes: Callable[[int], bytes]) -> str:
    """Return a new key as the service generates them: 256 bits in Base64."""
    return b64encode(random_bytes(_KEY_BYTES)).decode()


def policy_from_rule(rule: AuthorizationRule) -> SharedAccessPolicy | None:
    """Return the policy of an entity's authorization rule, or None when the rule is incomplete.

    Data files of older versions contain incomplete rules: they are preserved and listed, but grant nothing.
    """
    if rule.key_name is None or rule.primary_key is None or rule.secondary_key is None or len(rule.rights) == 0:
        return None
    if rule.created_time is None or rule.modified_time is None:
        return None
    try:
        return SharedAccessPolicy(
            name=rule.key_name,
            rights=frozenset(rule.rights),
            ordered_rights=rule.rights,
            primary_key=rule.primary_key,
            secondary_key=rule.secondary_key,
            created=rule.created_time,
            modified=rule.modified_time,
        )
    except DescriptionError:
        return None
