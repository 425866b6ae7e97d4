"""Tokens of Microsoft Entra ID, kept per process until they should be renewed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from azure.core.credentials import AccessToken, AccessTokenInfo, TokenRequestOptions
from azure.core.exceptions import AzureError

from servicebus_pair.core.identity import Identity

__all__ = ["Tokens", "token_of"]

_log = logging.getLogger(__name__)
# After a renewal that failed, the token in hand is used for so long before the next attempt.
_NEXT_ATTEMPT_SECONDS: Final = 30
# A token that ends sooner is none: the service's clock and ours differ.
_SHORTEST_LIFE_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class _Held:
    token: AccessToken = field(repr=False)
    renew_at: float


class Tokens:
    """Keeps tokens until they should be renewed, and asks once however many want one at the same time.

    An old token that is still good is better than none: when renewing fails, it is given for as long as it lasts.

    :param now: seconds since 1970, injected by tests.
    """

    def __init__(self, *, now: Callable[[], float] = time.time) -> None:
        self._now = now
        self._held: dict[Hashable, _Held] = {}
        # By event loop, since a lock belongs to one and a process may have several.
        self._turns: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[Hashable, asyncio.Lock]] = WeakKeyDictionary()

    async def get(
        self, key: Hashable, ask: Callable[[], Awaitable[AccessTokenInfo]], *, renew: bool = False
    ) -> AccessToken:
        """Answer the token of ``key``.

        :param key: whose token, and for what.
        :param ask: requests a new one.
        :param renew: ask, whatever is held.
        :raises AzureError: there is none, and ``ask`` failed.
        """
        held = self._held.get(key)
        if held is not None and not renew and self._now() < held.renew_at:
            return held.token
        turns = self._turns.setdefault(asyncio.get_running_loop(), {})
        async with turns.setdefault(key, asyncio.Lock()):
            known = self._held.get(key)
            if known is not None and known is not held and self._now() < known.renew_at:
                return known.token  # somebody else has asked meanwhile
            fresh = await self._renewed(None if renew else known, ask)
            self._held[key] = fresh
            return fresh.token

    async def _renewed(self, known: _Held | None, ask: Callable[[], Awaitable[AccessTokenInfo]]) -> _Held:
        try:
            info = await ask()
        except AzureError as failure:
            now = self._now()
            if known is None or known.token.expires_on - now < _SHORTEST_LIFE_SECONDS:
                raise
            left = known.token.expires_on - now
            _log.warning("a token is not renewed: %s; the old one lasts for %.0f s", type(failure).__name__, left)
            return replace(known, renew_at=now + _NEXT_ATTEMPT_SECONDS)
        now = self._now()
        half = now + (info.expires_on - now) / 2
        return _Held(AccessToken(info.token, info.expires_on), half if info.refresh_on is None else info.refresh_on)


_TOKENS: Final = Tokens()


async def token_of(
    identity: Identity, scopes: tuple[str, ...], *, claims: str | None, options: Mapping[str, Any]
) -> AccessToken:
    """Answer a token for ``identity``; see :meth:`Identity.get_token`."""
    asked: TokenRequestOptions = {}
    if (tenant := options.get("tenant_id")) is not None:
        asked["tenant_id"] = tenant
    if options.get("enable_cae"):
        asked["enable_cae"] = True
    key = (identity, scopes, *sorted(asked.items()))
    if claims is not None:
        asked["claims"] = claims

    async def ask() -> AccessTokenInfo:
        async with identity.credential() as credential:
            info: AccessTokenInfo = await credential.get_token_info(*scopes, options=asked)
            return info

    return await _TOKENS.get(key, ask, renew=claims is not None)
