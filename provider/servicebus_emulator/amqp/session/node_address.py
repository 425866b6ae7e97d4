"""Addresses of nodes: the entity, sub-queue or management node that a link is attached to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from servicebus_emulator.engine.namespace.entities import SubQueue

if TYPE_CHECKING:
    from proton import Link

_CBS = "$cbs"
_MANAGEMENT = "/$management"
_SUB_QUEUES = (
    ("/$transfer/$deadletterqueue", SubQueue.TRANSFER_DEAD_LETTER),
    ("/$deadletterqueue", SubQueue.DEAD_LETTER),
)


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A parsed address of a source or target.

    :ivar path: the path of the entity, in the client's spelling.
    :ivar sub_queue: the entity's queue or one of its sub-queues.
    :ivar management: whether the address is that of the entity's ``$management`` node.
    """

    path: str
    sub_queue: SubQueue = SubQueue.MAIN
    management: bool = False

    @property
    def is_cbs(self) -> bool:
        """Whether this is the node to which clients send their tokens."""
        return self.path.casefold() == _CBS

    @property
    def resource(self) -> str:
        """The whole path, including sub-queue and management node: the resource that a token must cover."""
        suffixes = [suffix for suffix, sub_queue in _SUB_QUEUES if sub_queue is self.sub_queue]
        return "".join([self.path, *suffixes, _MANAGEMENT if self.management else ""])

    @classmethod
    def of(cls, link: Link) -> NodeAddress:
        """Return the address that a client's attach names: the source of its receiver or the target of its sender."""
        text = (link.remote_source if link.is_sender else link.remote_target).address
        return cls.parse("" if text is None else text)

    @classmethod
    def parse(cls, text: str) -> NodeAddress:
        """Parse a path, or a URL such as ``amqps://host:port/path``, of which only the path is used."""
        # Not by urlsplit, which raises for malformed hosts: any input from a client is at worst an unknown path.
        path = text.partition("://")[2].partition("/")[2].partition("?")[0] if "://" in text else text
        path = path.strip("/")
        management = path.casefold().endswith(_MANAGEMENT)
        if management:
            path = path[: -len(_MANAGEMENT)]
        for suffix, sub_queue in _SUB_QUEUES:
            if path.casefold().endswith(suffix):
                return cls(path[: -len(suffix)], sub_queue, management)
        return cls(path, SubQueue.MAIN, management)
