"""A delivery that arrives in pieces, and how much of it is kept."""

from __future__ import annotations

from servicebus_emulator.amqp import proton

__all__ = ["Assembly"]


class Assembly:
    """Puts together the deliveries of one link, one after the other, and keeps nothing of what is too large.

    Each delivery that is over gives the sender its credit back.

    :param handle: the link.
    :param limit: how many bytes a delivery may have.
    """

    def __init__(self, handle: proton.Handle, *, limit: int) -> None:
        self.limit = limit
        self._handle = handle
        self._dropped = 0

    def take(self, delivery: proton.Handle) -> tuple[bytes, int] | None:
        """Return what a delivery holds, if all of it has arrived, and how large it was; None = it goes on, or is over.

        What was too large is returned in part, with its size. The link then stands at its next delivery. One that
        its sender gave up half way is settled.
        """
        if proton.is_aborted(delivery):
            self._dropped = 0
            proton.settle(delivery, state=None)
            proton.add_credit(self._handle, 1)
            return None
        if not proton.is_complete(delivery):
            pending = proton.pending_bytes(delivery)
            if pending > 0 and self._dropped + pending > self.limit:
                self._dropped += len(proton.read(self._handle, delivery))
            return None
        data = proton.read(self._handle, delivery)
        size, self._dropped = self._dropped + len(data), 0
        proton.advance(self._handle)
        proton.add_credit(self._handle, 1)
        return data, size
