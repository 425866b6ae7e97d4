"""Distinguishes a deleted entity from a refused credential.

Azure answers the token request for an entity that does not exist with 404 at ``$cbs``. The Python SDK (7.15) raises
this, like every other status, as ``ServiceBusAuthenticationError`` without the code: a deleted entity looks like a
wrong key, or like an outage of the token service. The administration API of the namespace knows, if the credential
has the Manage right or the endpoint has Azure Resource Manager coordinates.
"""

from __future__ import annotations

import asyncio
from typing import Final

from servicebus_pair.core.model.errors import EntityNotFoundError, ServiceError
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.options import Endpoint
from servicebus_pair.core.model.usage_meter import Meter
from servicebus_pair.core.sdk.administration import administration_for

_log = get_logger(__name__)
_LOOKUP_TIMEOUT: Final = 2.0
# A lookup that did not find the entity missing is reused, so that an outage does not cause one per attempt.
_CACHE_TTL: Final = 30.0


class EntityLookup:
    """Looks up whether entities of one namespace exist.

    :param endpoint: the namespace.
    :param meter: counts the lookups.
    """

    def __init__(self, endpoint: Endpoint, *, meter: Meter) -> None:
        self._endpoint = endpoint
        self._namespace = endpoint.namespace
        self._meter = meter
        # By folded path: until when the result holds, and the class of the error if the lookup failed.
        self._cache: dict[str, tuple[float, str | None]] = {}

    async def explain_auth_failure(self, error: ServiceError, path: str, *, timeout: float) -> ServiceError:
        """Return the error that a refused token for ``path`` stands for.

        :param error: the refusal.
        :param path: an entity or one of its sub-queues, which administration does not know: the entity is looked up.
        :param timeout: seconds that the lookup may take; at most 2 s are used.
        :returns: ``EntityNotFoundError`` when the entity does not exist, ``error`` when it does, and an error of the
            same class that says so when the lookup failed.
        """
        path = path.partition("/$")[0]
        now = asyncio.get_running_loop().time()
        expires, lookup_failure = self._cache.get(path.casefold(), (now, None))
        if now >= expires:
            try:
                if not await self._exists(path, timeout=min(timeout, _LOOKUP_TIMEOUT)):
                    return EntityNotFoundError(
                        f"{path} does not exist on {self._namespace}, so its token was refused: {error}"
                    )
                lookup_failure = None
            except (ServiceError, TimeoutError) as failure:
                lookup_failure = type(failure).__name__
                _log.warning("entity=%s: token refused, and looking up the entity failed: %s", path, failure)
            self._cache[path.casefold()] = now + _CACHE_TTL, lookup_failure
        if lookup_failure is None:
            return error
        return type(error)(
            f"{error}; cannot look up whether {path} exists ({lookup_failure}), and the token for a deleted entity "
            "is refused as well: grant the credential the Manage right, or check the entity yourself"
        )

    async def _exists(self, path: str, *, timeout: float) -> bool:
        async with asyncio.timeout(timeout), administration_for(self._endpoint, meter=self._meter) as administration:
            return await administration.entity_exists(path)
