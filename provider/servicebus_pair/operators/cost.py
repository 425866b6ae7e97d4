"""``ServiceBusPairCostOperator``: reports a pair's planned and measured operations and their cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar, Final

import pendulum
from airflow.sdk import Context

from servicebus_pair.airflow_runtime.observers.task_activity import nonzero_counts
from servicebus_pair.airflow_runtime.task_ledger import StoragePath, local_copy
from servicebus_pair.airflow_runtime.validators import duration, integer, optional, storage_path
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.operators._support.base import AsyncPairOperator

if TYPE_CHECKING:
    from servicebus_pair.core import Operations, PriceList

__all__ = ["ServiceBusPairCostOperator"]

_DAY: Final = timedelta(days=1)
_MAX_COUNT: Final = 10**12
_period = duration(timedelta(hours=1), 366 * _DAY)
_outage = duration(timedelta(0), 366 * _DAY)
_count = integer(0, _MAX_COUNT)
_size = integer(1, 100 * 1024 * 1024)


def _check_counts(name: str, value: Any) -> None:
    """Check a mapping of counts, or a list of them."""
    if not isinstance(value, Mapping | list | tuple):
        raise ConfigurationError(f"{name} is {value!r}: it must be a mapping of counts, or a list of them")


def _check_prices(name: str, value: Any) -> None:
    if not isinstance(value, Mapping | str):
        raise ConfigurationError(f"{name} is {value!r}: it must be a mapping, or JSON of one")


class ServiceBusPairCostOperator(AsyncPairOperator):
    """Reports the operations of a pair and their cost (SPEC section 8): operations first, money second.

    *Planned* is what the backlog uses in ``period``: the polls of a continuous syphon, pings during an outage, and
    messages that go through the backlog. *Measured* is what a ledger and meters counted. Each is billed as the whole
    of one month, in addition to ``before``. The task connects to no namespace.

    The result is ``{"period_seconds", "planned", "measured", "prices"}``: ``planned`` and ``measured`` (``None``
    without a ledger and operations) are ``{"operations": {name: n}, "total": n, "billable": n, "amount": text}``,
    ``prices`` is ``{"as_of", "currency"}``.

    :param period: length of the plan and of the measurement: a ``timedelta`` or seconds, an hour to 366 days
        (templated).
    :param messages: how many are expected to go through the backlog in the period (templated).
    :param size_bytes: size of each of them (templated).
    :param outage: how long one entity is expected to be failed over in the period (templated).
    :param ledger: folder of ledgers; the records of the last ``period`` are counted (templated).
    :param operations: counts of meters, such as the XComs ``operations`` of send and drill tasks; a mapping, or a list
        of them (templated).
    :param before: operations of other applications in the same month, which use up what the base charge includes
        (templated).
    :param prices: ``{"as_of": day, "currency": text, "tiers": [{"beyond": n, "per_million": text}]}``, or JSON
        of it; when not given, list prices of the Standard tier, which may be out of date (templated).
    :param servicebus_pair_conn_id: the connection of type ``servicebus_pair``; not a template.
    :raises ConfigurationError: a parameter is invalid, or the ledger does not exist.
    """

    template_fields = ("period", "messages", "size_bytes", "outage", "ledger", "operations", "before", "prices")
    parameter_checks: ClassVar = {
        "period": _period,
        "messages": _count,
        "size_bytes": _size,
        "outage": _outage,
        "ledger": optional(storage_path),
        "operations": optional(_check_counts),
        "before": _count,
        "prices": optional(_check_prices),
    }

    def __init__(
        self,
        *,
        period: timedelta | float | str = 30 * _DAY,
        messages: int | str = 0,
        size_bytes: int | str = 1024,
        outage: timedelta | float | str = timedelta(0),
        ledger: StoragePath | None = None,
        operations: Mapping[str, int] | Sequence[Mapping[str, int]] | None = None,
        before: int | str = 0,
        prices: Mapping[str, Any] | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.period = period
        self.messages = messages
        self.size_bytes = size_bytes
        self.outage = outage
        self.ledger = ledger
        self.operations = operations
        self.before = before
        self.prices = prices
        self.check_parameters()

    async def aexecute(self, context: Context) -> dict[str, Any]:
        """Calculate, log and return both reports."""
        period, prices = _period("period", self.period), self._prices()
        before = _count("before", self.before)
        planned = await self._planned(period)
        measured = await self._measured(period, until=_period_end(context))
        return {
            "period_seconds": period.total_seconds(),
            "planned": self._priced(f"planned for {period}", planned, prices, before=before),
            "measured": None
            if measured is None
            else self._priced(f"measured over {period}", measured, prices, before=before),
            "prices": {"as_of": prices.as_of.isoformat(), "currency": prices.currency},
        }

    async def _planned(self, period: timedelta) -> Operations:
        messages, size_bytes = _count("messages", self.messages), _size("size_bytes", self.size_bytes)
        outage = _outage("outage", self.outage)
        if outage > period:
            raise ConfigurationError(f"outage is {outage}: it must not be longer than the period, {period}")
        pair = await self.hook.unopened_pair()
        return pair.cost(period=period, messages=messages, size_bytes=size_bytes, outage=outage)

    async def _measured(self, period: timedelta, *, until: datetime) -> Operations | None:
        metered = None if self.operations is None else _parse_counts("operations", self.operations)
        if self.ledger is None:
            return metered
        from servicebus_pair.core.ledger import count_ledger

        with local_copy(self.ledger) as folder:
            found = await asyncio.to_thread(count_ledger, folder, since=until - period, until=until)
        self.log.info("ledger: records=%d operations=%d", found.records, found.operations.total)
        if found.unreadable:
            self.log.warning("ledger: %d lines are not records and were not counted", found.unreadable)
        return found.operations if metered is None else found.operations + metered

    def _prices(self) -> PriceList:
        from servicebus_pair.core.pricing import STANDARD_PRICES, read_prices

        given = self.prices
        if isinstance(given, str) and given.strip():
            try:
                given = json.loads(given)
            except ValueError as error:
                raise ConfigurationError(f"prices is {self.prices!r}: it must be a mapping, or JSON of one") from error
        return read_prices(given) if given else STANDARD_PRICES

    def _priced(self, title: str, operations: Operations, prices: PriceList, *, before: int) -> dict[str, Any]:
        """Log the operations and their cost, and return them."""
        from servicebus_pair.core import bill

        counts, invoice = nonzero_counts(operations), bill(operations, prices, before=before)
        self.log.info("operations %s:", title)
        for name, count in counts.items():
            self.log.info("  %-20s%16s", name.replace("_", " "), f"{count:,}")
        self.log.info("  %-20s%16s", "total", f"{operations.total:,}")
        self.log.info("  %-20s%16s %s, prices of %s", "cost", invoice.amount, prices.currency, prices.as_of)
        total, billable, amount = operations.total, invoice.billable, str(invoice.amount)
        return {"operations": counts, "total": total, "billable": billable, "amount": amount}


def _parse_counts(name: str, value: Any) -> Operations:
    """Parse a mapping of counts, or sum a list of them, such as the XComs of a mapped task."""
    from servicebus_pair.core import Operations

    _check_counts(name, value)
    if not isinstance(value, Mapping):
        return sum((_parse_counts(f"{name}[{index}]", each) for index, each in enumerate(value)), Operations())
    known = [each.name for each in fields(Operations)]
    for key, count in value.items():
        if key not in known:
            raise ConfigurationError(f"{name}: {key!r} is unknown: allowed are {', '.join(known)}")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise ConfigurationError(f"{name}: {key} is {count!r}: it must be a whole number of at least 0")
    return Operations(**value)


def _period_end(context: Mapping[str, Any]) -> datetime:
    """Return the end of the period: the run's scheduled time, so that a rerun reports the same, or now."""
    after = context["dag_run"].run_after
    return datetime.now(UTC) if after is None else min(pendulum.instance(after), pendulum.now("UTC"))
