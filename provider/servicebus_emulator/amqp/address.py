"""Where a link leads."""

from __future__ import annotations

from dataclasses import dataclass

from servicebus_emulator.engine.entities import SubQueue

__all__ = ["CBS", "Address"]

CBS = "$cbs"

_MANAGEMENT = "/$management"
_SUB_QUEUES = (
    ("/$transfer/$deadletterqueue", SubQueue.TRANSFER_DEAD_LETTER),
    ("/$deadletterqueue", SubQueue.DEAD_LETTER),
)


@dataclass(frozen=True, slots=True)
class Address:
    """An address of a source or target, taken apart.

    :ivar path: the path of the entity, as the client spells it.
    :ivar part: the entity's queue or one of its sub-queues.
    :ivar management: whether the link carries requests about the entity instead of messages.
    """

    path: str
    part: SubQueue = SubQueue.MAIN
    management: bool = False

    @property
    def resource(self) -> str:
        """The whole path, sub-queue and management node included: what a token has to be for."""
        suffixes = [suffix for suffix, part in _SUB_QUEUES if part is self.part]
        return "".join([self.path, *suffixes, _MANAGEMENT if self.management else ""])

    @classmethod
    def parse(cls, text: str) -> Address:
        """Take an address apart: a path, or a URL such as ``amqps://host:port/path`` of which the path counts."""
        # Not by urlsplit, which raises at hosts that are none: what a client sends is at worst an unknown path.
        path = text.partition("://")[2].partition("/")[2].partition("?")[0] if "://" in text else text
        path = path.strip("/")
        management = path.casefold().endswith(_MANAGEMENT)
        if management:
            path = path[: -len(_MANAGEMENT)]
        for suffix, part in _SUB_QUEUES:
            if path.casefold().endswith(suffix):
                return cls(path[: -len(suffix)], part, management)
        return cls(path, SubQueue.MAIN, management)
