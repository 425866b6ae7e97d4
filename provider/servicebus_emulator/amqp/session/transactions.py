"""The open transactions of one connection, by id."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Final

from servicebus_emulator.engine.model.errors import QuotaExceeded, TransactionUnknown
from servicebus_emulator.engine.namespace.transaction import Transaction

if TYPE_CHECKING:
    from servicebus_emulator.engine.namespace.namespace import Namespace

# Not limits of the service: what a transaction sends counts against no quota until it is committed.
_MAX_OPEN: Final = 100
_MAX_HELD_BYTES: Final = 64 * 1024 * 1024


class OpenTransaction(Transaction):
    """A transaction, and what is to be done when it ends."""

    def __init__(self, name: str, *, namespace: Namespace) -> None:
        super().__init__(name, namespace=namespace)
        self._callbacks: list[Callable[[bool], None]] = []

    def on_end(self, callback: Callable[[bool], None]) -> None:
        """Call `callback` when it ends, with whether it was committed."""
        self._callbacks.append(callback)

    def end(self, *, commit: bool) -> None:
        """Commit or roll back.

        :raises BrokerError: when it cannot be committed, and was rolled back.
        """
        committed = False
        try:
            if commit:
                self.commit()
                committed = True
            else:
                self.roll_back()
        finally:
            callbacks, self._callbacks = self._callbacks, []
            for callback in callbacks:
                callback(committed)


class Transactions:
    """The transactions that the client of one connection has declared and not discharged."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._open: dict[bytes, OpenTransaction] = {}
        self._numbers = count(1)

    def declare(self) -> bytes:
        """Begin a transaction and return its id.

        :raises QuotaExceeded: when too many are open.
        """
        for each in [each for each, transaction in self._open.items() if transaction.has_ended]:
            self.discharge(each, fail=True)
        if len(self._open) >= _MAX_OPEN:
            raise QuotaExceeded(f"the connection has {_MAX_OPEN} transactions, the maximum; discharge one first")
        name = f"txn:{next(self._numbers)}"
        self._open[name.encode()] = OpenTransaction(name, namespace=self._namespace)
        return name.encode()

    def find(self, transaction: bytes) -> OpenTransaction:
        """Return an open transaction.

        :raises TransactionUnknown: when it was not declared, or is discharged.
        """
        found = self._open.get(transaction)
        if found is None:
            raise TransactionUnknown("Transaction hasn't been declared yet, or has already been discharged")
        return found

    def check_size(self) -> None:
        """Check, before another message is taken, that the open transactions do not hold too much already.

        :raises QuotaExceeded: when they do.
        """
        held = sum(each.size for each in self._open.values())
        if held > _MAX_HELD_BYTES:
            raise QuotaExceeded(
                f"the open transactions of the connection hold {held} bytes; allowed: {_MAX_HELD_BYTES} and the message"
                " that exceeds them; discharge one first"
            )

    def discharge(self, transaction: bytes, *, fail: bool) -> None:
        """End a transaction.

        :param fail: whether to roll it back.
        :raises BrokerError: when it is not open, or could not be committed.
        """
        found = self.find(transaction)
        del self._open[transaction]
        found.end(commit=not fail)

    def roll_back(self, transaction: bytes) -> None:
        """Roll a transaction back if it is open."""
        if transaction in self._open:
            self.discharge(transaction, fail=True)
