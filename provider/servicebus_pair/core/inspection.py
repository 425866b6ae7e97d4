"""What works between a client and one namespace, found out without leaving a trace in it.

A sender link and a receiver link are opened on one queue, nothing is sent and nothing received, and the queues are
listed. That tells whether the namespace is reached, whether it knows the client, and the three rights.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Final

from servicebus_pair.core import errors
from servicebus_pair.core.clients import NamespaceClient
from servicebus_pair.core.errors import ServiceError, TimedOutError
from servicebus_pair.core.management import administration_of
from servicebus_pair.core.options import Endpoint

__all__ = ["Attempts", "Finding", "NamespaceFindings", "findings", "inspect_namespace"]

_SECONDS: Final = 6.0
_SHOWN_CHARACTERS: Final = 200
# On a namespace without any known queue: a queue that is not there is refused too, and by whom is what we ask.
_UNTRIED: Final = "no queue to try on"
_NO_QUEUE: Final = "servicebus-pair-connection-test"
_UNREACHED: Final = (errors.UnreachableError, errors.TimedOutError)
_UNKNOWN_CLIENT: Final = (errors.AuthenticationError, errors.AuthenticationSuspectError)
_REFUSED: Final = (*_UNREACHED, *_UNKNOWN_CLIENT)


@dataclass(frozen=True, slots=True)
class Finding:
    """Whether one thing works: yes, no, or not known; and why."""

    works: bool | None
    why: str = ""

    def __str__(self) -> str:
        word = {True: "yes", False: "no", None: "not known"}[self.works]
        return f"{word} ({self.why})" if self.why else word


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempts:
    """How each attempt ended: ``None`` for well.

    :param queue: that was tried on; ``None`` when there was none.
    """

    send: ServiceError | None
    listen: ServiceError | None
    manage: ServiceError | None
    queue: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceFindings:
    """What works on one namespace."""

    namespace: str
    reach: Finding
    authenticate: Finding
    send: Finding
    listen: Finding
    manage: Finding

    def __str__(self) -> str:
        if self.reach.works is False:
            return f"{self.namespace}: reach {self.reach}"
        told = ("reach", "authenticate", "send", "listen", "manage")
        return f"{self.namespace}: " + ", ".join(f"{name} {getattr(self, name)}" for name in told)

    def usable(self, *, listen: bool) -> bool:
        """Answer whether the client is known here and messages can be sent, as far as there was a queue to try on.

        :param listen: and received, as on a secondary.
        """
        rights = [self.send, *([self.listen] if listen else [])]
        known = self.reach.works is True and self.authenticate.works is True
        return known and all(right.works is not False for right in rights)


async def inspect_namespace(
    endpoint: Endpoint, *, queues: Sequence[str] = (), seconds: float = _SECONDS
) -> NamespaceFindings:
    """Find out what works; changes nothing, locks nothing, and never raises for what the service does.

    :param queues: to try on, the first of them that exists; any queue of the namespace when none is given.
    :param seconds: longest time of the listing, and of the two links together. Closing adds 2 s at most.
    """
    listed, manage = await _list(endpoint, seconds)
    queue = _choose(queues, listed)
    client = NamespaceClient(endpoint)
    tried = _NO_QUEUE if queue is None else queue
    receiver = client.receive_link(tried)
    try:
        send, listen = await asyncio.gather(
            _ended(client.send_link(tried).open(timeout=seconds), seconds),
            _ended(receiver.peek(most=1, timeout=seconds), seconds),
        )
    finally:
        await client.close()
    return findings(endpoint.namespace, Attempts(send=send, listen=listen, manage=manage, queue=queue))


def findings(namespace: str, attempts: Attempts) -> NamespaceFindings:
    """Answer what the attempts tell; pure."""
    links = (attempts.send, attempts.listen)
    return NamespaceFindings(
        namespace=namespace,
        reach=_reach(links),
        authenticate=_authenticate(links, tried=attempts.queue is not None, managed=attempts.manage is None),
        send=_right("Send", attempts.send, tried=attempts.queue is not None),
        listen=_right("Listen", attempts.listen, tried=attempts.queue is not None),
        manage=_manage(attempts.manage, known=any(not isinstance(error, _REFUSED) for error in links)),
    )


def _reach(links: Sequence[ServiceError | None]) -> Finding:
    lost = [error for error in links if isinstance(error, _UNREACHED)]
    return Finding(works=False, why=_shown(lost[0])) if len(lost) == len(links) else Finding(works=True)


def _authenticate(links: Sequence[ServiceError | None], *, tried: bool, managed: bool) -> Finding:
    reached = [error for error in links if not isinstance(error, _UNREACHED)]
    refused = [error for error in reached if isinstance(error, _UNKNOWN_CLIENT)]
    if not reached:
        return Finding(works=None, why="not reached")
    if len(refused) < len(reached) or (managed and not tried):
        return Finding(works=True)
    if tried:
        return Finding(works=False, why=_shown(refused[0]))
    return Finding(works=None, why=f"{_UNTRIED}, and Azure refuses a token for none: {_shown(refused[0])}")


def _right(name: str, error: ServiceError | None, *, tried: bool) -> Finding:
    match error:
        case None:
            return Finding(works=True)
        case errors.AuthorizationError():
            return Finding(works=False, why=f"the right {name} is missing")
        case errors.EntityNotFoundError():
            return Finding(works=None, why=_UNTRIED)
        case errors.AuthenticationError() | errors.AuthenticationSuspectError():
            return Finding(works=False, why="not authenticated") if tried else Finding(works=None, why=_UNTRIED)
        case errors.RefusedError() | errors.EntityDisabledError() | errors.QuotaExceededError():
            return Finding(works=None, why=_shown(error))
    return Finding(works=False, why=_shown(error))


def _manage(error: ServiceError | None, *, known: bool) -> Finding:
    """The administration answers 401 to a client without the right as to one that it does not know."""
    if error is None:
        return Finding(works=True)
    if isinstance(error, errors.AuthorizationError) or (known and isinstance(error, errors.AuthenticationError)):
        return Finding(works=False, why="the right Manage is missing")
    return Finding(works=False, why=_shown(error))


def _choose(queues: Sequence[str], listed: Sequence[str] | None) -> str | None:
    """The queue to try on: of those asked for, one that exists, as far as is known."""
    if listed is None:
        return queues[0] if queues else None
    there = {path.casefold() for path in listed}
    wanted = [path for path in queues if path.casefold() in there] if queues else sorted(listed)
    return wanted[0] if wanted else None


async def _list(endpoint: Endpoint, seconds: float) -> tuple[list[str] | None, ServiceError | None]:
    listed: list[str] = []

    async def read() -> None:
        async with administration_of(endpoint) as administration:
            listed.extend(await administration.queues())

    error = await _ended(read(), seconds)
    return (listed, None) if error is None else (None, error)


async def _ended(attempt: Awaitable[object], seconds: float) -> ServiceError | None:
    try:
        async with asyncio.timeout(seconds):
            await attempt
    except TimeoutError:
        return TimedOutError(f"no answer within {seconds:g} s")
    except ServiceError as error:
        return error
    return None


def _shown(error: ServiceError) -> str:
    return str(error)[:_SHOWN_CHARACTERS]
