"""Check the connection to a namespace, and the spool, without changing anything in them.

Opens a sender link and a receiver link on one queue, without sending or receiving, and lists the queues. The outcomes
show whether the namespace is reachable, whether authentication works, and which of the three rights the client has.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from servicebus_pair.core.model import errors
from servicebus_pair.core.model.errors import ServiceError, SpoolError, TimedOutError
from servicebus_pair.core.model.interfaces import SystemClock
from servicebus_pair.core.model.options import Endpoint, PairOptions
from servicebus_pair.core.sdk.administration import administration_for
from servicebus_pair.core.sdk.namespace_client import NamespaceClient
from servicebus_pair.core.spool.spool import open_spool

_TIMEOUT: Final = 6.0
_MAX_ERROR_CHARACTERS: Final = 200
# Used when no queue is known: the error for a missing queue still shows whether authentication works.
_UNTESTED: Final = "no queue to test"
_MISSING_QUEUE: Final = "servicebus-pair-connection-test"
_UNREACHABLE: Final = (errors.UnreachableError, errors.TimedOutError)
_UNAUTHENTICATED: Final = (errors.AuthenticationError, errors.AuthenticationSuspectError)
_NO_SESSION: Final = (*_UNREACHABLE, *_UNAUTHENTICATED)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Whether something works (``None`` if unknown), and why."""

    works: bool | None
    why: str = ""

    def __str__(self) -> str:
        answer = {True: "yes", False: "no", None: "not known"}[self.works]
        return f"{answer} ({self.why})" if self.why else answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """Error of each attempt; ``None`` for success.

    :param queue: queue used for the links; ``None`` if there was none.
    """

    send: ServiceError | None
    listen: ServiceError | None
    manage: ServiceError | None
    queue: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceCheck:
    """Check results for one namespace."""

    namespace: str
    reach: CheckResult
    authenticate: CheckResult
    send: CheckResult
    listen: CheckResult
    manage: CheckResult

    def __str__(self) -> str:
        if self.reach.works is False:
            return f"{self.namespace}: reach {self.reach}"
        names = ("reach", "authenticate", "send", "listen", "manage")
        return f"{self.namespace}: " + ", ".join(f"{name} {getattr(self, name)}" for name in names)

    def usable(self, *, listen: bool) -> bool:
        """Return whether the client can authenticate and send, as far as there was a queue to test.

        :param listen: also require the right to receive, as on a secondary.
        """
        rights = [self.send, *([self.listen] if listen else [])]
        known = self.reach.works is True and self.authenticate.works is True
        return known and all(right.works is not False for right in rights)


async def check_namespace(
    endpoint: Endpoint, *, queues: Sequence[str] = (), timeout: float = _TIMEOUT
) -> NamespaceCheck:
    """Check a namespace. Changes and locks nothing, and does not raise for errors of the service.

    :param queues: candidates for the links, of which the first existing one is used; by default any queue, if possible
        one that does not require sessions, since those cannot be peeked without locking a session.
    :param timeout: seconds for listing the queues, and again for opening both links. Closing adds at most 2 s.
    """
    listed, manage = await _list_queues(endpoint, timeout)
    queue = _choose_queue(queues, listed)
    client = NamespaceClient(endpoint)
    path = _MISSING_QUEUE if queue is None else queue
    receiver = client.receive_link(path)
    try:
        send, listen = await asyncio.gather(
            _error_of(client.send_link(path).open(timeout=timeout), timeout),
            _error_of(receiver.peek(max_messages=1, timeout=timeout), timeout),
        )
    finally:
        await client.close()
    return evaluate_attempts(endpoint.namespace, Attempts(send=send, listen=listen, manage=manage, queue=queue))


async def check_spool(options: PairOptions) -> CheckResult | None:
    """Check whether this machine could write to the spool, if there is one; without writing, it finds no full disk.

    :raises ConfigurationError: its location or its key is wrong.
    """
    spool = open_spool(options, clock=SystemClock())
    if spool is None:
        return None
    try:
        problem = await spool.problem()
    except SpoolError as error:
        problem = str(error)
    return CheckResult(works=problem is None, why="" if problem is None else problem[:_MAX_ERROR_CHARACTERS])


def evaluate_attempts(namespace: str, attempts: Attempts) -> NamespaceCheck:
    """Derive the check results from the attempts. Pure."""
    links = (attempts.send, attempts.listen)
    return NamespaceCheck(
        namespace=namespace,
        reach=_reach(links),
        authenticate=_authenticate(links, tested=attempts.queue is not None, managed=attempts.manage is None),
        send=_right("Send", attempts.send, tested=attempts.queue is not None),
        listen=_right("Listen", attempts.listen, tested=attempts.queue is not None),
        manage=_manage(attempts.manage, known=any(not isinstance(error, _NO_SESSION) for error in links)),
    )


def _reach(links: Sequence[ServiceError | None]) -> CheckResult:
    lost = [error for error in links if isinstance(error, _UNREACHABLE)]
    return CheckResult(works=False, why=_shorten(lost[0])) if len(lost) == len(links) else CheckResult(works=True)


def _authenticate(links: Sequence[ServiceError | None], *, tested: bool, managed: bool) -> CheckResult:
    reached = [error for error in links if not isinstance(error, _UNREACHABLE)]
    refused = [error for error in reached if isinstance(error, _UNAUTHENTICATED)]
    if not reached:
        return CheckResult(works=None, why="not reached")
    if refused != reached or (managed and not tested):
        return CheckResult(works=True)
    if tested:
        return CheckResult(works=False, why=_shorten(refused[0]))
    return CheckResult(works=None, why=f"{_UNTESTED}, and Azure issues no token without one: {_shorten(refused[0])}")


def _right(name: str, error: ServiceError | None, *, tested: bool) -> CheckResult:
    match error:
        case None:
            return CheckResult(works=True)
        case errors.AuthorizationError():
            return CheckResult(works=False, why=f"the right {name} is missing")
        case errors.EntityNotFoundError():
            return CheckResult(works=None, why=_UNTESTED)
        case errors.AuthenticationError() | errors.AuthenticationSuspectError():
            return (
                CheckResult(works=False, why="not authenticated") if tested else CheckResult(works=None, why=_UNTESTED)
            )
        case errors.RefusedError() | errors.EntityDisabledError() | errors.QuotaExceededError():
            return CheckResult(works=None, why=_shorten(error))
    return CheckResult(works=False, why=_shorten(error))


def _manage(error: ServiceError | None, *, known: bool) -> CheckResult:
    """Evaluate the listing; the service answers 401 both to a client without Manage and to an unauthenticated one."""
    if error is None:
        return CheckResult(works=True)
    if isinstance(error, errors.AuthorizationError) or (known and isinstance(error, errors.AuthenticationError)):
        return CheckResult(works=False, why="the right Manage is missing")
    return CheckResult(works=False, why=_shorten(error))


def _choose_queue(queues: Sequence[str], listed: Mapping[str, bool] | None) -> str | None:
    """Return the queue to test: a candidate that exists, if the existing queues are known.

    :param listed: whether each existing queue requires sessions.
    """
    if listed is None:
        return queues[0] if queues else None
    existing = {path.casefold() for path in listed}
    by_preference = sorted(listed, key=lambda path: (listed[path], path))
    wanted = [path for path in queues if path.casefold() in existing] if queues else by_preference
    return wanted[0] if wanted else None


async def _list_queues(endpoint: Endpoint, timeout: float) -> tuple[dict[str, bool] | None, ServiceError | None]:
    listed: dict[str, bool] = {}

    async def read() -> None:
        async with administration_for(endpoint) as administration:
            queues = await administration.list_queues()
            listed.update({path: settings.requires_session for path, settings in queues.items()})

    error = await _error_of(read(), timeout)
    return (listed, None) if error is None else (None, error)


async def _error_of(attempt: Awaitable[object], timeout: float) -> ServiceError | None:
    try:
        async with asyncio.timeout(timeout):
            await attempt
    except TimeoutError:
        return TimedOutError(f"no answer within {timeout:g} s")
    except ServiceError as error:
        return error
    return None


def _shorten(error: ServiceError) -> str:
    return str(error)[:_MAX_ERROR_CHARACTERS]
