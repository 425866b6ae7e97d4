"""Whether an entity exists, asked where its token was refused.

Azure answers a token for an entity that does not exist with 404 at ``$cbs``; the Python SDK (7.15)
raises that, and each other status, as ``ServiceBusAuthenticationError`` without the code. So a
deleted entity looks like a wrong key, or like an outage of the token service. The administration of
the same namespace tells them apart, if the credential may ask it: the data plane's with the same
credential, or Azure Resource Manager where the endpoint has it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from servicebus_pair.core.errors import EntityNotFoundError, ServiceError
from servicebus_pair.core.management import administration_of
from servicebus_pair.core.meter import Meter
from servicebus_pair.core.options import Endpoint

__all__ = ["Existence"]

_log = logging.getLogger(__name__)
_LONGEST_QUESTION: Final = 2.0
# An answer that was no "it does not exist" holds for so long, so that an outage is not asked about at each attempt.
_ANSWER_HOLDS: Final = 30.0


class Existence:
    """Asks about the entities of one namespace.

    :param endpoint: the namespace, asked through the way in by which it is managed.
    :param meter: counts the questions.
    """

    def __init__(self, endpoint: Endpoint, *, meter: Meter) -> None:
        self._endpoint = endpoint
        self._namespace = endpoint.namespace
        self._meter = meter
        self._known: dict[str, tuple[float, str | None]] = {}

    async def explain(self, error: ServiceError, path: str, *, seconds: float) -> ServiceError:
        """Answer what a refused token for ``path`` means.

        :param error: the refusal.
        :param seconds: how long the answer may take; never more than 2 s.
        :returns: ``EntityNotFoundError`` when the entity does not exist, ``error`` when it does, and an error of
            the class of ``error`` that says so when that cannot be asked.
        """
        now = asyncio.get_running_loop().time()
        until, unasked = self._known.get(path.casefold(), (0.0, None))
        if now >= until:
            try:
                if not await self._ask(path, seconds=min(seconds, _LONGEST_QUESTION)):
                    return EntityNotFoundError(
                        f"{path} does not exist on {self._namespace}, so its token was refused: {error}"
                    )
                unasked = None
            except (ServiceError, TimeoutError) as failure:
                unasked = type(failure).__name__
                _log.warning("entity=%s: token refused, and whether it exists cannot be asked: %s", path, failure)
            self._known[path.casefold()] = now + _ANSWER_HOLDS, unasked
        if unasked is None:
            return error
        return type(error)(
            f"{error}; whether {path} exists cannot be asked ({unasked}), and the token for a deleted entity is "
            "refused alike: give the credential the Manage right, or look yourself"
        )

    async def _ask(self, path: str, *, seconds: float) -> bool:
        async with asyncio.timeout(seconds), administration_of(self._endpoint, meter=self._meter) as administration:
            return await administration.exists(path)
