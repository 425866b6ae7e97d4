"""The shared access rules of a namespace and of its entities: kept, found, changed, their keys renewed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from servicebus_emulator.engine.access_rules import (
    ALL_RIGHTS,
    DEFAULT_KEY,
    ROOT_RULE,
    AccessRule,
    check_rules,
    new_key,
    stored,
)
from servicebus_emulator.engine.descriptions import (
    AccessRight,
    AuthorizationRule,
    DescriptionError,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.errors import EntityNotFound, InvalidArgument
from servicebus_emulator.engine.journal import Description

if TYPE_CHECKING:
    from servicebus_emulator.engine.context import Context

__all__ = ["AccessRules", "Key"]

D = TypeVar("D", QueueDescription, TopicDescription)

_Described = QueueDescription | TopicDescription


class Key(StrEnum):
    """One of the two keys of a rule."""

    PRIMARY = "PrimaryKey"
    SECONDARY = "SecondaryKey"


class _Directory(Protocol):
    """The entities, as their rules need them."""

    def get_entity(self, path: str) -> Description: ...

    def update_queue(self, description: QueueDescription) -> QueueDescription: ...

    def update_topic(self, description: TopicDescription) -> TopicDescription: ...


class AccessRules:
    """The rules of a namespace, and those of its queues and topics, which are part of their descriptions.

    Throughout, `path` is the path of a queue or topic, and None means the namespace itself. A change is durable
    when the method returns. The namespace's own rule ``RootManageSharedAccessKey`` is kept only once it has been
    changed: until then it has the key that the namespace is started with.

    :param directory: the namespace.
    :param remembered: the namespace's own rules, as its journal remembers them.
    """

    def __init__(self, directory: _Directory, *, context: Context, remembered: Iterable[AccessRule]) -> None:
        self._directory: Final = directory
        self._context: Final = context
        self._rules: Final = {rule.name.casefold(): rule for rule in remembered}
        self._root_kept: Final = ROOT_RULE.casefold() in self._rules
        if not self._root_kept:
            self._set_root((DEFAULT_KEY, DEFAULT_KEY))

    def start_with(self, keys: tuple[str, str]) -> bool:
        """Give the namespace's root rule the keys that it has until it is changed; return whether it took them.

        It does not when the rule was changed before and is kept on disk: that is what clients know by now.

        :raises DescriptionError: when a key is empty or too long.
        """
        if not self._root_kept:
            self._set_root(keys)
        return self.root.keys == keys

    @property
    def root(self) -> AccessRule:
        """The namespace's rule with all rights that always exists."""
        return self.get(ROOT_RULE)

    def list(self, path: str | None = None) -> tuple[AccessRule, ...]:
        """Return the rules, sorted by name.

        :raises EntityNotFound: when no queue or topic has the path.
        """
        rules = self._rules if path is None else _rules_of(self._described(path))
        return tuple(rules[name] for name in sorted(rules))

    def get(self, name: str, *, path: str | None = None) -> AccessRule:
        """Return one rule.

        :raises EntityNotFound: when no queue or topic has the path, or there is no such rule.
        """
        rules = self._rules if path is None else _rules_of(self._described(path))
        rule = rules.get(name.casefold())
        if rule is None:
            raise EntityNotFound(f"{_place(path)} has no authorization rule of that name; create it first")
        return rule

    def find(self, path: str) -> tuple[AccessRule, ...]:
        """Return the rules of the queue or topic at `path`; of a subscription's path, those of its topic; or none."""
        topic = path.casefold().partition("/subscriptions/")[0]
        try:
            return self.list(topic)
        except EntityNotFound:
            return ()

    def put(
        self,
        name: str,
        *,
        rights: Iterable[AccessRight],
        path: str | None = None,
        primary_key: str | None = None,
        secondary_key: str | None = None,
    ) -> AccessRule:
        """Create a rule, or change the rights of one; keys that are not given are kept, or made.

        :raises EntityNotFound: when no queue or topic has the path.
        :raises DescriptionError: naming the field and what is allowed.
        """
        before = (self._rules if path is None else _rules_of(self._described(path))).get(name.casefold())
        now = self._now()
        made = AccessRule(
            name=name if before is None else before.name,
            rights=frozenset(rights),
            primary_key=self._key(primary_key, before=None if before is None else before.primary_key),
            secondary_key=self._key(secondary_key, before=None if before is None else before.secondary_key),
            created=now if before is None else before.created,
            modified=now,
        )
        self._save(made, path=path)
        return made

    def delete(self, name: str, *, path: str | None = None) -> None:
        """Delete a rule.

        :raises EntityNotFound: when no queue or topic has the path, or there is no such rule.
        :raises InvalidArgument: when it is the namespace's root rule.
        """
        doomed = self.get(name, path=path)
        if path is not None:
            self._describe(self._described(path), rules=[each for each in self.list(path) if each != doomed])
            return
        if doomed.name.casefold() == ROOT_RULE.casefold():
            raise InvalidArgument(f"{ROOT_RULE} of the namespace cannot be deleted; regenerate its keys instead")
        del self._rules[doomed.name.casefold()]
        self._context.journal.drop_access_rule(doomed.name)
        self._context.journal.commit()

    def regenerate(self, name: str, *, key: Key, path: str | None = None, value: str | None = None) -> AccessRule:
        """Give a rule a new key; what was signed with the old one is refused from now on.

        :param key: which of the two.
        :param value: the new key; None = a new random one.
        :raises EntityNotFound: when no queue or topic has the path, or there is no such rule.
        :raises DescriptionError: when the value is empty or too long.
        """
        rule = self.get(name, path=path)
        made = new_key(self._context.random_bytes) if value is None else value
        changed = (
            replace(rule, primary_key=made, modified=self._now())
            if key == Key.PRIMARY
            else replace(rule, secondary_key=made, modified=self._now())
        )
        self._save(changed, path=path)
        return changed

    def completed(self, description: D) -> D:
        """Return a description whose rules have what the service adds: keys and times that were left out.

        A rule that the entity has already keeps the time of its creation, and its keys where none are given.

        :raises DescriptionError: naming the field and what is allowed.
        """
        known = {rule.name.casefold(): rule for rule in self.find(description.path)}
        rules = tuple(self._completed(rule, known=known) for rule in description.authorization_rules)
        check_rules(str(rule.key_name) for rule in rules)
        return replace(description, authorization_rules=rules)

    # Steps

    def _completed(self, rule: AuthorizationRule, *, known: dict[str, AccessRule]) -> AuthorizationRule:
        if rule.key_name is None:
            raise DescriptionError("AuthorizationRule.KeyName", value=None, allowed="the name of the rule")
        before, now = known.get(rule.key_name.casefold()), self._now()
        completed = replace(
            rule,
            primary_key=self._key(rule.primary_key, before=None if before is None else before.primary_key),
            secondary_key=self._key(rule.secondary_key, before=None if before is None else before.secondary_key),
            created_time=now if before is None else before.created,
            modified_time=now,
        )
        made = AccessRule(
            name=rule.key_name,
            rights=frozenset(rule.rights),
            primary_key=completed.primary_key or "",
            secondary_key=completed.secondary_key or "",
            created=now,
            modified=now,
        )
        if before is not None and (made.rights, made.keys) == (before.rights, before.keys):
            completed = replace(completed, modified_time=before.modified)
        return completed

    def _key(self, given: str | None, *, before: str | None) -> str:
        if given is not None:
            return given
        return new_key(self._context.random_bytes) if before is None else before

    def _save(self, rule: AccessRule, *, path: str | None) -> None:
        key = rule.name.casefold()
        if path is not None:
            described = self._described(path)
            self._describe(described, rules=[*({**_rules_of(described), key: rule}.values())])
            return
        check_rules([*(each.name for name, each in self._rules.items() if name != key), rule.name])
        self._rules[key] = rule
        self._context.journal.save_access_rule(rule)
        self._context.journal.commit()

    def _describe(self, description: _Described, *, rules: Iterable[AccessRule]) -> None:
        described = tuple(rule.as_authorization() for rule in rules)
        check_rules(str(rule.key_name) for rule in described)
        changed = replace(description, authorization_rules=described)
        if isinstance(changed, QueueDescription):
            self._directory.update_queue(changed)
        else:
            self._directory.update_topic(changed)

    def _described(self, path: str) -> _Described:
        description = self._directory.get_entity(path)
        if isinstance(description, SubscriptionDescription):
            raise EntityNotFound(f"{path!r} is a subscription; its rules are those of {description.topic_path!r}")
        return description

    def _set_root(self, keys: tuple[str, str]) -> None:
        now = self._now()
        self._rules[ROOT_RULE.casefold()] = AccessRule(
            name=ROOT_RULE, rights=ALL_RIGHTS, primary_key=keys[0], secondary_key=keys[1], created=now, modified=now
        )

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._context.clock.now() / 1000, tz=UTC)


def _rules_of(description: _Described) -> dict[str, AccessRule]:
    rules = map(stored, description.authorization_rules)
    return {rule.name.casefold(): rule for rule in rules if rule is not None}


def _place(path: str | None) -> str:
    return "the namespace" if path is None else repr(path)
