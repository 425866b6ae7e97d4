"""The messages of one queue, indexed by sequence number."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from servicebus_emulator.engine.model.message import Content, Message, total_size

_MIN_STALE_NUMBERS = 1024


class SequenceIndex:
    """Messages by sequence number, with iteration from any number on.

    :ivar size_in_bytes: the total size of the messages.
    """

    __slots__ = ("_by_number", "_order", "size_in_bytes")

    def __init__(self) -> None:
        self._by_number: dict[int, Message] = {}
        # May contain numbers of removed messages: deleting from the middle of a list takes linear time.
        self._order: list[int] = []
        self.size_in_bytes = 0

    def __len__(self) -> int:
        return len(self._by_number)

    def add(self, message: Message) -> None:
        """Add a message whose sequence number is new to the index."""
        number = message.sequence_number
        if self._order and number < self._order[-1]:
            insort(self._order, number)
        else:
            self._order.append(number)
        self._by_number[number] = message
        self.size_in_bytes += message.content.size

    def extend(self, messages: Sequence[Message], *, numbers: Sequence[int], size_in_bytes: int) -> None:
        """Add messages whose sequence numbers ascend and are higher than all before.

        :param numbers: the sequence numbers of `messages`.
        :param size_in_bytes: the total size of `messages`.
        """
        self._order.extend(numbers)
        self._by_number.update(zip(numbers, messages, strict=True))
        self.size_in_bytes += size_in_bytes

    def get(self, number: int) -> Message | None:
        """Return the message with a sequence number, or None."""
        return self._by_number.get(number)

    def pop(self, number: int) -> Message:
        """Remove and return the message with a sequence number.

        :raises KeyError: when there is none.
        """
        message = self._by_number[number]
        self.remove(message)
        return message

    def remove(self, message: Message) -> None:
        """Remove a message that is in the index."""
        del self._by_number[message.sequence_number]
        self.size_in_bytes -= message.content.size
        self._drop_stale()

    def remove_all(self, messages: Sequence[Message]) -> None:
        """Remove messages that are in the index."""
        by_number = self._by_number
        for message in messages:
            del by_number[message.sequence_number]
        self.size_in_bytes -= total_size([message.content for message in messages])
        self._drop_stale()

    def _drop_stale(self) -> None:
        if len(self._order) > 2 * len(self._by_number) + _MIN_STALE_NUMBERS:
            self._order = [number for number in self._order if number in self._by_number]

    def replace_content(self, message: Message, content: Content) -> None:
        """Replace the content of a message that is in the index."""
        self.size_in_bytes += content.size - message.content.size
        message.content = content

    def starting_at(self, number: int) -> Iterator[Message]:
        """Yield the messages from `number` on, ascending. The index must not change during iteration."""
        by_number = self._by_number
        for position in range(bisect_left(self._order, number), len(self._order)):
            message = by_number.get(self._order[position])
            if message is not None:
                yield message
