"""The shared access policies of a namespace and of its queues and topics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Final, Protocol

from servicebus_emulator.engine.model.access_policy import (
    ALL_RIGHTS,
    DEFAULT_KEY,
    ROOT_POLICY,
    SharedAccessPolicy,
    check_policy_names,
    new_key,
    policy_from_rule,
)
from servicebus_emulator.engine.model.descriptions import (
    AccessRight,
    AuthorizationRule,
    Description,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from servicebus_emulator.engine.model.entity_names import DescriptionError
from servicebus_emulator.engine.model.errors import EntityNotFound, InvalidArgument

if TYPE_CHECKING:
    from servicebus_emulator.engine.runtime.context import Context

_AnyTarget = QueueDescription | TopicDescription
# As the service lists them.
_ROOT_RIGHTS: Final = (AccessRight.LISTEN, AccessRight.MANAGE, AccessRight.SEND)


class PolicyKey(StrEnum):
    """One of the two keys of a policy."""

    PRIMARY = "PrimaryKey"
    SECONDARY = "SecondaryKey"


class _Entities(Protocol):
    """The part of a namespace that manages entities."""

    def get_entity(self, path: str) -> Description: ...

    def update(self, description: Description) -> Description: ...

    def list_queues(self) -> tuple[QueueDescription, ...]: ...

    def list_topics(self) -> tuple[TopicDescription, ...]: ...


class SharedAccessPolicies:
    """The policies of a namespace, and those of its queues and topics, which are part of their descriptions.

    In all methods, `path` is the path of a queue or topic, and None means the namespace itself. A change is durable
    when the method returns. The root policy ``RootManageSharedAccessKey`` is persisted only once it has been changed;
    until then its keys are those that the namespace was started with.

    :param entities: the namespace.
    :param persisted: the namespace's own policies in its journal.
    """

    def __init__(self, entities: _Entities, *, context: Context, persisted: Iterable[SharedAccessPolicy]) -> None:
        self._entities: Final = entities
        self._context: Final = context
        self._policies: Final = {policy.name.casefold(): policy for policy in persisted}
        self._is_root_persisted: Final = ROOT_POLICY.casefold() in self._policies
        if not self._is_root_persisted:
            self._set_root((DEFAULT_KEY, DEFAULT_KEY))

    def set_initial_root_keys(self, keys: tuple[str, str]) -> bool:
        """Set the keys of the root policy unless a persisted policy has others.

        :param keys: the primary and the secondary key.
        :return: whether the root policy has these keys now. Persisted keys win, because clients already use them.
        :raises DescriptionError: when a key is empty or too long.
        """
        if not self._is_root_persisted:
            self._set_root(keys)
        return self.root.keys == keys

    @property
    def root(self) -> SharedAccessPolicy:
        """The namespace's root policy, which has all rights."""
        return self.get(ROOT_POLICY)

    def list(self, path: str | None = None) -> tuple[SharedAccessPolicy, ...]:
        """Return the policies, sorted by name.

        :raises EntityNotFound: when the queue or topic does not exist.
        """
        policies = self._by_name(path)
        return tuple(policies[name] for name in sorted(policies))

    def get(self, name: str, *, path: str | None = None) -> SharedAccessPolicy:
        """Return one policy.

        :raises EntityNotFound: when the queue, topic or policy does not exist.
        """
        policy = self._by_name(path).get(name.casefold())
        if policy is None:
            raise EntityNotFound(f"{_owner(path)} has no authorization rule of that name; create it first")
        return policy

    def find(self, path: str) -> tuple[SharedAccessPolicy, ...]:
        """Return the policies of the queue or topic at `path`, for a subscription those of its topic; or none."""
        topic = path.casefold().partition("/subscriptions/")[0]
        try:
            return self.list(topic)
        except EntityNotFound:
            return ()

    def named(self, name: str) -> Iterator[tuple[str | None, SharedAccessPolicy]]:
        """Yield all policies of a name, each with the path of its queue or topic (None = the namespace)."""
        folded = name.casefold()
        if folded in self._policies:
            yield None, self._policies[folded]
        for entities in (self._entities.list_queues(), self._entities.list_topics()):
            for entity in entities:
                policy = _policies_of(entity).get(folded)
                if policy is not None:
                    yield entity.path, policy

    def put(
        self,
        name: str,
        *,
        rights: Iterable[AccessRight],
        path: str | None = None,
        primary_key: str | None = None,
        secondary_key: str | None = None,
    ) -> SharedAccessPolicy:
        """Create a policy or replace its rights. Keys that are not given are kept, or generated for a new policy.

        :raises EntityNotFound: when the queue or topic does not exist.
        :raises DescriptionError: when a value is invalid.
        """
        before = self._by_name(path).get(name.casefold())
        policy = self._merge(
            name if before is None else before.name, rights=rights, keys=(primary_key, secondary_key), before=before
        )
        self._save(policy, path=path)
        return policy

    def delete(self, name: str, *, path: str | None = None) -> None:
        """Delete a policy.

        :raises EntityNotFound: when the queue, topic or policy does not exist.
        :raises InvalidArgument: when it is the namespace's root policy.
        """
        deleted = self.get(name, path=path)
        if path is not None:
            self._update(self._target(path), policies=[each for each in self.list(path) if each != deleted])
            return
        if deleted.name.casefold() == ROOT_POLICY.casefold():
            raise InvalidArgument(f"{ROOT_POLICY} of the namespace cannot be deleted; regenerate its keys instead")
        del self._policies[deleted.name.casefold()]
        self._context.journal.delete_access_policy(deleted.name)
        self._context.journal.commit()

    def regenerate(
        self, name: str, *, key: PolicyKey, path: str | None = None, value: str | None = None
    ) -> SharedAccessPolicy:
        """Replace a key of a policy. Tokens signed with the old key are refused from now on.

        :param value: the new key; None = a new random one.
        :raises EntityNotFound: when the queue, topic or policy does not exist.
        :raises DescriptionError: when the value is empty or too long.
        """
        policy = self.get(name, path=path)
        new = new_key(self._context.random_bytes) if value is None else value
        changed = replace(
            policy,
            primary_key=new if key == PolicyKey.PRIMARY else policy.primary_key,
            secondary_key=new if key == PolicyKey.SECONDARY else policy.secondary_key,
            modified=self._now(),
        )
        self._save(changed, path=path)
        return changed

    def complete(self, description: Description) -> Description:
        """Return a description with the missing keys and times of its authorization rules, if any, filled in.

        A rule that the entity already has keeps its creation time, and its keys where none are given.

        :raises DescriptionError: when a value is invalid.
        """
        if isinstance(description, SubscriptionDescription):
            return description
        known = {policy.name.casefold(): policy for policy in self.find(description.path)}
        rules = tuple(self._complete_rule(rule, known=known) for rule in description.authorization_rules)
        check_policy_names(str(rule.key_name) for rule in rules)
        return replace(description, authorization_rules=rules)

    # Internals

    def _complete_rule(self, rule: AuthorizationRule, *, known: dict[str, SharedAccessPolicy]) -> AuthorizationRule:
        if rule.key_name is None:
            raise DescriptionError("AuthorizationRule.KeyName", value=None, allowed="the name of the rule")
        before = known.get(rule.key_name.casefold())
        keys = (rule.primary_key, rule.secondary_key)
        policy = self._merge(rule.key_name, rights=rule.rights, keys=keys, before=before)
        if before is not None and (policy.rights, policy.keys) == (before.rights, before.keys):
            policy = replace(policy, modified=before.modified)
        return replace(
            rule,
            primary_key=policy.primary_key,
            secondary_key=policy.secondary_key,
            created_time=policy.created,
            modified_time=policy.modified,
        )

    def _merge(
        self,
        name: str,
        *,
        rights: Iterable[AccessRight],
        keys: tuple[str | None, str | None],
        before: SharedAccessPolicy | None,
    ) -> SharedAccessPolicy:
        """Return a policy; keys that are None are those of the policy before, or new ones."""
        random_bytes, now = self._context.random_bytes, self._now()
        others = (new_key(random_bytes), new_key(random_bytes)) if before is None else before.keys
        primary, secondary = (other if key is None else key for key, other in zip(keys, others, strict=True))
        created = now if before is None else before.created
        ordered = tuple(rights)
        return SharedAccessPolicy(
            name=name,
            rights=frozenset(ordered),
            ordered_rights=ordered,
            primary_key=primary,
            secondary_key=secondary,
            created=created,
            modified=now,
        )

    def _by_name(self, path: str | None) -> dict[str, SharedAccessPolicy]:
        return self._policies if path is None else _policies_of(self._target(path))

    def _save(self, policy: SharedAccessPolicy, *, path: str | None) -> None:
        key = policy.name.casefold()
        if path is not None:
            target = self._target(path)
            self._update(target, policies=[*({**_policies_of(target), key: policy}.values())])
            return
        check_policy_names([*(each.name for name, each in self._policies.items() if name != key), policy.name])
        self._policies[key] = policy
        self._context.journal.save_access_policy(policy)
        self._context.journal.commit()

    def _update(self, target: _AnyTarget, *, policies: Iterable[SharedAccessPolicy]) -> None:
        rules = tuple(policy.to_rule() for policy in policies)
        check_policy_names(str(rule.key_name) for rule in rules)
        self._entities.update(replace(target, authorization_rules=rules))

    def _target(self, path: str) -> _AnyTarget:
        description = self._entities.get_entity(path)
        if isinstance(description, SubscriptionDescription):
            raise EntityNotFound(
                f"{path!r} is a subscription without authorization rules; use those of {description.topic_path!r}"
            )
        return description

    def _set_root(self, keys: tuple[str, str]) -> None:
        now = self._now()
        self._policies[ROOT_POLICY.casefold()] = SharedAccessPolicy(
            name=ROOT_POLICY,
            rights=ALL_RIGHTS,
            ordered_rights=_ROOT_RIGHTS,
            primary_key=keys[0],
            secondary_key=keys[1],
            created=now,
            modified=now,
        )

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._context.clock.now() / 1000, tz=UTC)


def _policies_of(target: _AnyTarget) -> dict[str, SharedAccessPolicy]:
    policies = map(policy_from_rule, target.authorization_rules)
    return {policy.name.casefold(): policy for policy in policies if policy is not None}


def _owner(path: str | None) -> str:
    return "the namespace" if path is None else repr(path)
