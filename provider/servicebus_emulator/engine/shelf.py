"""The messages of one queue by sequence number."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from servicebus_emulator.engine.message import Message

__all__ = ["Shelf"]

_SLACK = 1024


class Shelf:
    """Messages by sequence number, with a cursor that starts anywhere without a scan."""

    __slots__ = ("_by_number", "_order", "size_in_bytes")

    def __init__(self) -> None:
        self._by_number: dict[int, Message] = {}
        # May hold numbers that are gone: removing from the middle of a list would cost its length.
        self._order: list[int] = []
        self.size_in_bytes = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def add(self, message: Message) -> None:
        """Take in a message whose number has not been on this shelf before."""
        number = message.number
        if self._order and number < self._order[-1]:
            insort(self._order, number)
        else:
            self._order.append(number)
        self._by_number[number] = message
        self.size_in_bytes += message.content.size

    def extend(self, messages: Sequence[Message], *, numbers: Sequence[int], size_in_bytes: int) -> None:
        """Take in messages by their numbers, which ascend and are higher than all that have been on this shelf before.

        :param size_in_bytes: of all of them.
        """
        self._order.extend(numbers)
        self._by_number.update(zip(numbers, messages, strict=True))
        self.size_in_bytes += size_in_bytes

    def get(self, number: int) -> Message | None:
        """Return the message with this sequence number, or None."""
        return self._by_number.get(number)

    def take(self, number: int) -> Message:
        """Remove and return the message with this sequence number.

        :raises KeyError: when there is none.
        """
        message = self._by_number[number]
        self.remove(message)
        return message

    def remove(self, message: Message) -> None:
        """Give up a message that is on the shelf."""
        del self._by_number[message.number]
        self.size_in_bytes -= message.content.size
        if len(self._order) > 2 * len(self._by_number) + _SLACK:
            self._order = [number for number in self._order if number in self._by_number]

    def starting_at(self, number: int) -> Iterator[Message]:
        """Yield the messages from `number` on, by sequence number. The shelf must not change meanwhile."""
        by_number = self._by_number
        for position in range(bisect_left(self._order, number), len(self._order)):
            message = by_number.get(self._order[position])
            if message is not None:
                yield message
