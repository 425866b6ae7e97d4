"""Reassembles incoming deliveries, and gives the client credit for the next ones."""

from __future__ import annotations

from collections.abc import Callable

from servicebus_emulator.amqp.codec import proton_fast_path as proton


class DeliveryBuffer:
    """Collects the transfers of each delivery on one link, and discards the bytes of deliveries that are too large.

    :param handle: the link.
    :param max_bytes: returns the size above which the bytes of an incomplete delivery are discarded.
    :param credit: the link credit; renewed when half of it is used.
    """

    def __init__(self, handle: proton.Handle, *, max_bytes: Callable[[], int], credit: int) -> None:
        self._handle = handle
        self._max_bytes = max_bytes
        self._max_credit = credit
        self._credit = 0
        self._discarded = 0
        self._is_batch = False

    def renew_credit(self) -> None:
        """Give the client credit, if half of it or more is used."""
        if self._credit <= self._max_credit // 2:
            proton.add_credit(self._handle, self._max_credit - self._credit)
            self._credit = self._max_credit

    def take(self, delivery: proton.Handle, *, batch: bool = False) -> tuple[bytes, int, bool] | None:
        """Return the bytes and the full size of a complete delivery, and whether it is a batch.

        ``None`` means that it is incomplete or was aborted.

        :param batch: whether the frame that arrived says that it is a batch.

        Of a delivery that is too large, only the bytes that arrived last are returned. The link advances to its next
        delivery. An aborted delivery is settled.
        """
        self._is_batch = self._is_batch or batch
        if proton.is_aborted(delivery):
            self._discarded, self._is_batch = 0, False
            proton.settle(delivery, state=None)
            self._credit -= 1
            self.renew_credit()
            return None
        if not proton.is_complete(delivery):
            pending = proton.pending_bytes(delivery)
            if pending > 0 and self._discarded + pending > self._max_bytes():
                self._discarded += len(proton.read(self._handle, delivery))
            return None
        data = proton.read(self._handle, delivery)
        size, is_batch = self._discarded + len(data), self._is_batch
        self._discarded, self._is_batch = 0, False
        proton.advance(self._handle)
        self._credit -= 1
        self.renew_credit()
        return data, size, is_batch
