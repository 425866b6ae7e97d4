"""Sends the batches of one send to the entity itself, within the limits of each attempt (SPEC section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from servicebus_pair.core.model.errors import ServiceError
from servicebus_pair.core.model.events import Route
from servicebus_pair.core.model.health_state import HealthState
from servicebus_pair.core.model.health_transitions import SendFailed, SendSucceeded
from servicebus_pair.core.sdk.error_mapping import triggers_failover
from servicebus_pair.core.sdk.send_link import SendLink, SendSlot
from servicebus_pair.core.send.attempt import AttemptExecutor, SendOperation, TrackedBatch
from servicebus_pair.core.send.backlog_copies import LARGEST_UNCHECKED
from servicebus_pair.core.send.backlog_sender import BacklogSender
from servicebus_pair.core.send.next_step import AttemptHistory, SendPolicy, remaining_interval
from servicebus_pair.core.send.pair_context import PairContext
from servicebus_pair.core.send.timeouts import Deadline, attempt_timeout, prepare_delay

NO_HISTORY = AttemptHistory()
"""Of a batch that was not attempted yet."""


class SenderContext:
    """What all sends of one sender share.

    :param pair: what all senders of the pair share.
    :param link: to the entity on the primary.
    :param backlog: diverts what the primary does not accept.
    :ivar longest_attempt: seconds.
    :ivar longest_wait: for the link while other sends use it, seconds.
    """

    def __init__(self, entity: str, pair: PairContext, *, link: SendLink, backlog: BacklogSender) -> None:
        self.entity = entity
        self.key = entity.casefold()
        self.pair = pair
        self.link = link
        self.backlog = backlog
        self.policy = SendPolicy(
            interval=pair.options.failover_interval.total_seconds(),
            busy_delay=pair.options.server_busy_delay.total_seconds(),
            ordered=pair.order is not None,
            spools=pair.spool is not None and pair.order is None,
            spools_in_order=pair.spool is not None and pair.order is not None,
            unspools=pair.unspooled_from is not None,
        )
        self.longest_attempt = pair.options.attempt_timeout.total_seconds()
        self.longest_wait = max(self.policy.interval, self.longest_attempt)


class PrimarySender:
    """Makes the attempts of one send on the primary, and adds them to the history of the batch and to health.

    :param operation: sends or schedules a batch over the sender's link.
    :param deadline: of the whole send.
    """

    def __init__(
        self, sender: SenderContext, executor: AttemptExecutor, *, operation: SendOperation, deadline: Deadline
    ) -> None:
        self._sender = sender
        self._entity = sender.entity
        self._registry = sender.pair.registry
        self._clock = sender.pair.clock
        self._executor = executor
        self._operation = operation
        self._deadline = deadline

    @property
    def failed_over(self) -> bool:
        """Whether the entity is failed over, as far as this process knows."""
        health = self._registry.current(self._entity)
        return health.state is not HealthState.HEALTHY and health.failed_over

    async def open_link(self) -> None:
        """Open the link for its size limits, unless the primary cannot be reached now."""
        if self.failed_over:
            return  # a hanging ping may hold the link
        timer = _AttemptTimer(self._clock.now())
        try:
            await self._sender.link.open_in_slot(self._slot(NO_HISTORY, timer, sends=False))
        except ServiceError as error:
            if self._is_final(error):
                raise
            if not self._sender.policy.spools:
                self._deadline.remaining(last=error)
            if triggers_failover(error, self._sender.pair.options):
                self._record_failure(error, timer.began)
        finally:
            timer.end()

    async def attempt(self, batch: TrackedBatch, history: AttemptHistory) -> AttemptHistory | None:
        """Attempt to send a batch; return its history if that failed or was given up, ``None`` once it is accepted."""
        if max(batch.encoded.sizes) > LARGEST_UNCHECKED:
            self._sender.backlog.check_sizes(batch.encoded)
        timer = _AttemptTimer(waiting_since := self._clock.now())
        try:
            sent = await self._executor.attempt(batch, self._operation, self._slot(history, timer), route=Route.PRIMARY)
        except ServiceError as error:
            return self._failed(history, error, timer)
        finally:
            timer.end()
        now = self._clock.now()
        if sent:
            if self._registry.current(self._entity).state is HealthState.SUSPECT:
                self._registry.apply(self._entity, SendSucceeded())
            self._sender.pair.accepted_at[self._sender.key] = now
            return None
        # If the link was busy with other sends all the time, the clock of this send goes on.
        return history.waited(since=waiting_since) if now - waiting_since >= self._sender.longest_wait else history

    async def probe(self, history: AttemptHistory) -> AttemptHistory:
        """Find out whether the entity takes anything else than a message that it rejected."""
        since, accepted_at = history.rejected_since or 0.0, self._sender.pair.accepted_at
        key = self._sender.key
        if accepted_at.get(key, 0.0) <= since:
            timeout = self._attempt_timeout(history)
            failure = await self._sender.pair.prober.probe(self._entity, timeout=timeout)
            if failure is not None:
                self._record_failure(failure, history.rejected_since)
                return history.probed(works_at=None)
            accepted_at[key] = self._clock.now()
        return history.probed(works_at=accepted_at[key])

    def _slot(self, history: AttemptHistory, timer: _AttemptTimer, *, sends: bool = True) -> SendSlot:
        """Return a slot that is given up once the entity failed over, and that ends with the failover interval.

        :param sends: a lease is needed, which opening a link does not.
        """

        def still_wanted() -> bool:
            if sends and self._sender.policy.ordered and self._registry.lease_seconds_left(self._entity) <= 0:
                return False
            return not self.failed_over

        def seconds() -> float | None:
            if not still_wanted():
                return None
            timeout = self._attempt_timeout(history)
            timer.start(
                self._clock.now(),
                attached=self._sender.link.attached,
                prepare_after=prepare_delay(timeout),
                prepare=self._sender.backlog.prepare,
            )
            return timeout

        return SendSlot(
            attempt_timeout=seconds,
            still_wanted=still_wanted,
            wait_seconds=min(self._deadline.remaining(last=history.last_error), self._sender.longest_wait),
        )

    def _attempt_timeout(self, history: AttemptHistory) -> float:
        """Return the seconds that an attempt may take that starts now; it ends with the failover interval."""
        left = remaining_interval(
            self._registry.current(self._entity),
            interval=self._sender.policy.interval,
            now=self._clock.now(),
            failing_since=history.failing_since,
        )
        longest = self._sender.longest_attempt
        return min(attempt_timeout(left, longest=longest), self._deadline.remaining(last=history.last_error))

    def _failed(self, history: AttemptHistory, error: ServiceError, timer: _AttemptTimer) -> AttemptHistory:
        is_final = self._is_final(error)
        after = history.failed(error, began=timer.began, was_attached=timer.was_attached, is_final=is_final)
        if is_final:
            return after
        if after.counts:
            self._record_failure(error, after.failing_since)
        if not self.failed_over:
            self._sender.backlog.prepare()
        return after

    def _record_failure(self, error: ServiceError, since: float | None) -> None:
        began = self._clock.now() if since is None else since
        self._registry.apply(self._entity, SendFailed(str(error), began))

    def _is_final(self, error: ServiceError) -> bool:
        return not (error.retriable or triggers_failover(error, self._sender.pair.options))


class _AttemptTimer:
    """When an attempt began, once the link was free; and the timer that opens the link to the backlog if it is slow."""

    def __init__(self, now: float) -> None:
        self.began = now
        self.was_attached = False
        self._prepare: asyncio.TimerHandle | None = None

    def start(self, now: float, *, attached: bool, prepare_after: float, prepare: Callable[[], None]) -> None:
        """Start the attempt; ``attached`` says whether the link had worked before."""
        self.began, self.was_attached = now, attached
        self._prepare = asyncio.get_running_loop().call_later(prepare_after, prepare)

    def end(self) -> None:
        """End the attempt, whatever its outcome."""
        if self._prepare is not None:
            self._prepare.cancel()
