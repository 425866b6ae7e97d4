"""What to do next with a batch for the primary (SPEC section 4). Pure: time, health and history decide.

::

    no failure yet                     -> Attempt
    the entity is failed over          -> Divert, or Spool what follows spooled messages where order is kept
    an error for the caller            -> Fail
    the message was rejected; from a
    spool also: refused, too large     -> Probe whether the entity takes anything else; if not, it counts as a failure;
                                          else Split until the message is alone, two more tries, and Refuse
    busy                               -> Pause, as long as the caller allows
    neither namespace took it in time  -> Spool, if there is a spool
    failing for the failover interval  -> Divert, even while other sends succeed; where order is kept, Fail if they do,
                                          else go on until the entity fails over
    any other failure                  -> Pause, longer each time

From the first failing attempt to the first message in the backlog, a send may take the failover interval plus 2 s,
whatever the primary does. So an attempt ends with the interval, and one that starts at its end gets 1 s.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, isinf
from typing import Final, TypeAlias

from servicebus_pair.core.model.errors import (
    InvalidMessageError,
    MessageTooLargeError,
    RefusedError,
    RejectedError,
    SendError,
    ServerBusyError,
    ServiceError,
    TimedOutError,
    UnreachableError,
)
from servicebus_pair.core.model.health_state import EntityHealth, HealthState

MESSAGE_ERRORS: Final = (RejectedError, RefusedError, MessageTooLargeError, InvalidMessageError)
"""What the service says of one message of a batch."""
_MAX_REJECTIONS: Final = 3
# Without a deadline, a send that meets a busy service for longer than this and the interval is diverted.
_MAX_BUSY_ANSWERS: Final = 10
_REJECTION_DELAY: Final = 0.25
# Seconds of the pause after so many failures that counted, and after each further one.
_RETRY_DELAYS: Final = (0.25, 0.25, 0.5, 1.0, 2.0, 4.0, 5.0)
_MIN_ATTEMPT: Final = 1.0
_MIN_LATE_ATTEMPT: Final = 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPolicy:
    """Limits of all sends of one sender. Times are seconds.

    :param interval: failover interval.
    :param busy_delay: pause after "server busy".
    :param ordered: session order is kept, so only a failed-over entity may be diverted.
    :param spools: there is a spool, and what neither namespace takes goes there at once.
    :param spools_in_order: there is one for what no backlog queue takes, on which all processes agree first.
    :param unspools: the messages come from the spool.
    """

    interval: float
    busy_delay: float
    ordered: bool = False
    spools: bool = False
    spools_in_order: bool = False
    unspools: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHistory:
    """What happened to one batch on the primary so far. Times are seconds on the pair's clock.

    :param failing_since: start of the first attempt after which none succeeded; "server busy" starts it anew.
    :param busy_since: start of the first attempt that was answered with "server busy".
    :param error: the last failure, until it has been dealt with; then an attempt is due.
    :param last_error: the last failure.
    :param is_final: the last failure is an error for the caller.
    :param counts: the last failure counts against the entity's health.
    :param failures: how many failures counted.
    :param rejections: how often the batch was rejected.
    :param rejected_since: start of the first attempt that ended so; infinite before.
    :param works_at: when the entity last accepted something else, as far as that was looked up.
    :param probe_failed: nothing else was accepted either.
    :param backlog_error: why the backlog did not take it.
    :param forgiven: the loss of a working connection was not counted, which happens once.
    :param epoch: of the entity's health meanwhile; counted with session order only.
    """

    failing_since: float | None = None
    busy_since: float | None = None
    error: ServiceError | None = None
    last_error: ServiceError | None = None
    is_final: bool = False
    counts: bool = False
    failures: int = 0
    busy_answers: int = 0
    rejections: int = 0
    rejected_since: float = inf
    works_at: float | None = None
    probe_failed: bool = False
    forgiven: bool = False
    backlog_error: SendError | None = None
    epoch: int = 0

    def failed(self, error: ServiceError, *, began: float, was_attached: bool, is_final: bool) -> AttemptHistory:
        """Return the history after an attempt failed.

        :param began: start of the attempt.
        :param was_attached: the link had worked before.
        """
        since = began if self.failing_since is None else self.failing_since
        after = replace(self, error=error, last_error=error, failing_since=since, is_final=is_final, counts=False)
        if is_final:
            return after
        match error:
            case ServerBusyError():
                busy_since = since if self.busy_since is None else self.busy_since
                return replace(after, failing_since=None, busy_since=busy_since, busy_answers=self.busy_answers + 1)
            case _ if isinstance(error, MESSAGE_ERRORS):
                rejected_since = min(self.rejected_since, began)
                return replace(after, rejections=self.rejections + 1, rejected_since=rejected_since, probe_failed=False)
            case UnreachableError() if was_attached and not self.forgiven:
                return replace(after, error=None, forgiven=True)
        return replace(after, counts=True, failures=self.failures + 1)

    def probed(self, *, works_at: float | None) -> AttemptHistory:
        """Return the history after it was found out whether the entity accepts anything else.

        :param works_at: when it did; ``None`` if it does not.
        """
        if works_at is not None:
            return replace(self, works_at=works_at)
        if self.error is not None and not isinstance(self.error, RejectedError):
            return replace(self, is_final=True)
        failures = self.failures + 1
        return replace(self, works_at=None, probe_failed=True, rejections=0, counts=True, failures=failures)

    def waited(self, *, since: float) -> AttemptHistory:
        """Return the history after the link was busy with other sends from ``since`` on."""
        error = TimedOutError("the link to the entity was busy with other sends")
        began = since if self.failing_since is None else self.failing_since
        return replace(self, error=error, last_error=error, failing_since=began, counts=False)

    def not_diverted(self, error: SendError) -> AttemptHistory:
        """Return the history after the backlog did not take the messages."""
        return replace(self, backlog_error=error)

    def paused(self) -> AttemptHistory:
        """Return the history after a pause: an attempt is due."""
        return replace(self, error=None, counts=False)

    def in_epoch(self, epoch: int) -> AttemptHistory:
        """Return the history in this epoch of the entity's health; what failed before its route changed is over."""
        return self if epoch == self.epoch or self.is_final else AttemptHistory(last_error=self.last_error, epoch=epoch)

    def part(self) -> AttemptHistory:
        """Return the history of a part of a rejected batch: its clock goes on, and it was not rejected itself."""
        return AttemptHistory(
            failing_since=self.failing_since,
            last_error=self.last_error,
            works_at=self.works_at,
            forgiven=self.forgiven,
            backlog_error=self.backlog_error,
            epoch=self.epoch,
        )

    @property
    def retry_delay(self) -> float:
        """Seconds to wait after a failure: doubling with each that counted, at most 5."""
        return _RETRY_DELAYS[min(self.failures, len(_RETRY_DELAYS) - 1)]


@dataclass(frozen=True, slots=True)
class Attempt:
    """Send the batch to the primary."""


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait, at most until the entity's health changes."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Split:
    """Send the two halves of the batch one after the other."""


@dataclass(frozen=True, slots=True)
class Probe:
    """Find out whether the entity accepts anything else."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Return the message to the caller as not accepted."""


@dataclass(frozen=True, slots=True)
class Divert:
    """Send the messages to the backlog."""


@dataclass(frozen=True, slots=True)
class Spool:
    """Write the messages to the spool."""


@dataclass(frozen=True, slots=True)
class Fail:
    """End the send with this error."""

    error: ServiceError | SendError


@dataclass(frozen=True, slots=True)
class TimeOut:
    """End the send because the caller's time is over.

    :param error: the failure that used it up, if any.
    """

    error: ServiceError | None


Step: TypeAlias = Attempt | Pause | Split | Probe | Refuse | Divert | Spool | Fail | TimeOut


def next_step(
    history: AttemptHistory,
    health: EntityHealth,
    *,
    now: float,
    messages: int,
    policy: SendPolicy,
    deadline: float = inf,
    backlog_is_down: bool = False,
) -> Step:
    """Return what to do with a batch of so many messages.

    :param deadline: when the caller's time is over, on the pair's clock; infinite without a limit.
    :param backlog_is_down: no backlog queue took a message lately.
    """
    if history.error is not None and history.is_final:
        return Fail(history.error)
    follows_spooled = policy.ordered and health.spool and not policy.unspools
    if follows_spooled or history.backlog_error is not None or deadline <= now:
        return Spool() if follows_spooled else _spool_or_end(history, policy)
    if health.state is not HealthState.HEALTHY and health.failed_over:
        return Spool() if policy.spools and backlog_is_down else Divert()
    match history.error:
        case None:
            return Attempt()
        case error if isinstance(error, MESSAGE_ERRORS) and not history.probe_failed:
            return _after_rejection(history, messages, now, deadline)
        case ServerBusyError() as error:
            return _after_busy(error, history, now, policy, deadline)
        case error if _own_clock_is_over(history, health, now, policy):
            return _divert_or_fail(error, policy)
    remaining = remaining_interval(health, interval=policy.interval, now=now, failing_since=history.failing_since)
    if policy.ordered and remaining <= 0 and health.state is HealthState.SUSPECT:
        remaining = remaining_interval(health, interval=policy.interval, now=now)
    return Pause(min(history.retry_delay, max(0.0, remaining), deadline - now))


def remaining_interval(
    health: EntityHealth, *, interval: float, now: float, failing_since: float | None = None
) -> float:
    """Return the seconds until the messages are diverted unless an attempt succeeds; ``interval`` while nothing failed.

    The clock of the send and that of the entity both count. The result is negative when the interval has passed and
    one more attempt is due, because the loss of a connection is retried once.

    :param interval: the failover interval, seconds.
    :param failing_since: start of this send's first failed attempt.
    """
    since = failing_since
    if health.state is HealthState.SUSPECT:
        since = health.since if since is None else min(since, health.since)
    return interval if since is None else since + interval - now


def attempt_timeout(remaining: float, *, longest: float) -> float:
    """Return the timeout of an attempt when the failover interval ends in ``remaining`` seconds.

    :param longest: the option ``attempt_timeout``, seconds.
    """
    if remaining < 0:
        return min(longest, max(_MIN_LATE_ATTEMPT, _MIN_ATTEMPT + remaining))
    return min(longest, max(_MIN_ATTEMPT, remaining))


def is_overdue(history: AttemptHistory, health: EntityHealth, *, now: float, interval: float) -> bool:
    """Return whether an entity should have failed over with the last failure of this history."""
    return history.counts and health.state is HealthState.SUSPECT and health.since <= now - interval


def _after_rejection(history: AttemptHistory, messages: int, now: float, deadline: float) -> Step:
    if history.works_at is None:
        return Probe()
    if messages > 1:
        return Split()
    if history.rejections < _MAX_REJECTIONS:
        return Pause(min(_REJECTION_DELAY * history.rejections, deadline - now))
    # The verdict needs a proof from the time in which this message was rejected.
    return Refuse() if history.works_at > history.rejected_since else Probe()


def _after_busy(error: ServiceError, history: AttemptHistory, now: float, policy: SendPolicy, deadline: float) -> Step:
    if policy.busy_delay > deadline - now:
        return Spool() if policy.spools else TimeOut(error)
    since = now if history.busy_since is None else history.busy_since
    enough = history.busy_answers > _MAX_BUSY_ANSWERS and since <= now - policy.interval
    if isinf(deadline) and enough:
        return _divert_or_fail(error, policy)
    return Pause(policy.busy_delay)


def _spool_or_end(history: AttemptHistory, policy: SendPolicy) -> Step:
    if policy.spools or (policy.spools_in_order and history.backlog_error is not None):
        return Spool()
    return TimeOut(history.last_error) if history.backlog_error is None else Fail(history.backlog_error)


def _divert_or_fail(error: ServiceError, policy: SendPolicy) -> Step:
    return Fail(error) if policy.ordered else Divert()


def _own_clock_is_over(history: AttemptHistory, health: EntityHealth, now: float, policy: SendPolicy) -> bool:
    if history.failing_since is None or history.failing_since > now - policy.interval:
        return False
    if not policy.ordered:
        return True
    # A send may not be diverted alone. One that only waited for the link tries, and so does one whose entity takes
    # nothing from others either since then: it fails over, or takes it.
    ends = history.failing_since + policy.interval
    return history.counts and (health.state is HealthState.HEALTHY or health.since > ends)
