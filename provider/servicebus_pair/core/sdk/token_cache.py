"""Cache of Microsoft Entra ID tokens, one per process.

Apart from ``credentials``, because DAG parsing imports that module and must not load the Azure SDK.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from azure.core.credentials import AccessToken, AccessTokenInfo, TokenRequestOptions
from azure.core.exceptions import AzureError, DecodeError

from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.sdk.credentials import Identity

_log = get_logger(__name__)
# The pause after a failed refresh, during which the old token is used.
_REFRESH_RETRY_SECONDS: Final = 30
# The end of the year 9999, the last that a time of Python has.
_MAX_EXPIRY: Final = 253_402_300_799
# A token with less time left counts as expired, because the service's clock may differ from ours.
_MIN_REMAINING_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class _CachedToken:
    token: AccessToken = field(repr=False)
    refresh_at: float


class TokenCache:
    """Caches tokens until they are due for refresh; concurrent callers share one request.

    If a refresh fails, the old token is returned for as long as it is valid.

    :param now: seconds since the Unix epoch, injected by tests.
    """

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._tokens: dict[Hashable, _CachedToken] = {}
        # By event loop: a lock belongs to one, and a process may have several.
        self._locks: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, asyncio.Lock]] = WeakKeyDictionary()

    async def get(
        self, key: Hashable, request: Callable[[], Awaitable[AccessTokenInfo]], *, force_refresh: bool = False
    ) -> AccessToken:
        """Return the token of ``key``.

        :param key: identity and scopes.
        :param request: requests a new token.
        :param force_refresh: ignore the cached token.
        :raises AzureError: there is no valid token, and ``request`` failed.
        """
        seen = self._tokens.get(key)
        if seen is not None and not force_refresh and self._now() < seen.refresh_at:
            return seen.token
        locks = self._locks.setdefault(asyncio.get_running_loop(), {})
        async with locks.setdefault(key, asyncio.Lock()):
            cached = self._tokens.get(key)
            if cached is not None and cached is not seen:
                return cached.token  # another caller refreshed it while this one waited
            fresh = await self._refresh(None if force_refresh else cached, request)
            self._tokens[key] = fresh
            return fresh.token

    async def _refresh(
        self, cached: _CachedToken | None, request: Callable[[], Awaitable[AccessTokenInfo]]
    ) -> _CachedToken:
        try:
            info = await request()
        except AzureError as failure:
            now = self._now()
            if cached is None or cached.token.expires_on - now < _MIN_REMAINING_SECONDS:
                raise
            remaining = cached.token.expires_on - now
            _log.warning(
                "token refresh failed with %s; the old token is valid for %.0f s", type(failure).__name__, remaining
            )
            return replace(cached, refresh_at=now + _REFRESH_RETRY_SECONDS)
        now = self._now()
        half_life = now + (info.expires_on - now) / 2
        refresh_at = half_life if info.refresh_on is None else info.refresh_on
        return _CachedToken(AccessToken(info.token, info.expires_on), refresh_at)


_CACHE: Final = TokenCache()


async def cached_token(
    identity: Identity, scopes: tuple[str, ...], *, claims: str | None, options: Mapping[str, Any]
) -> AccessToken:
    """Return a token for ``identity``; see :meth:`Identity.get_token`."""
    request_options: TokenRequestOptions = {}
    if (tenant := options.get("tenant_id")) is not None:
        request_options["tenant_id"] = tenant
    if options.get("enable_cae"):
        request_options["enable_cae"] = True
    key = (identity, scopes, *sorted(request_options.items()))
    if claims is not None:
        request_options["claims"] = claims

    async def request() -> AccessTokenInfo:
        async with identity.credential() as credential:
            try:
                info: AccessTokenInfo = await credential.get_token_info(*scopes, options=request_options)
                return _checked(info)
            except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
                # An error in what was given would look the same, and stand for a message that cannot be sent.
                raise DecodeError(f"the token service's answer is not one of its: {type(error).__name__}") from error

    return await _CACHE.get(key, request, force_refresh=claims is not None)


def _checked(info: AccessTokenInfo) -> AccessTokenInfo:
    """:raises ValueError: it is not a token, or its times are not times."""
    times = (info.expires_on, *(() if info.refresh_on is None else (info.refresh_on,)))
    token: object = info.token
    if not isinstance(token, str) or not token.isascii() or not token.isprintable():
        raise ValueError("the token is not a line of ASCII")
    if not all(0 <= each <= _MAX_EXPIRY for each in times):
        raise ValueError("the token does not expire at a time")
    return info
