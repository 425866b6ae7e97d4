"""What all sends of one sender share."""

from __future__ import annotations

from servicebus_pair.core.sdk.send_link import SendLink
from servicebus_pair.core.send.backlog_sender import BacklogSender
from servicebus_pair.core.send.next_step import SendPolicy
from servicebus_pair.core.send.pair_context import PairContext
from servicebus_pair.core.send.timeouts import Deadline


class SenderContext:
    """The parts, options and limits of one sender.

    :param pair: what all senders of the pair share.
    :param link: to the entity on the primary.
    :param backlog: diverts what the primary does not accept.
    :ivar no_deadline: of sends without a time limit.
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
        self.no_deadline = Deadline(pair.clock, timeout=None)
        self.longest_attempt = pair.options.attempt_timeout.total_seconds()
        self.longest_wait = max(self.policy.interval, self.longest_attempt)
