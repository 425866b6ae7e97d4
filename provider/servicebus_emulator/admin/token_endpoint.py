"""The token endpoint: what azure-identity's client-secret credential asks an authority.

``GET /{tenant}/v2.0/.well-known/openid-configuration`` says where things are (OpenID Connect Discovery 1.0),
``POST /{tenant}/oauth2/v2.0/token`` gives a token for a client's id and secret (RFC 6749, section 4.4), and
``GET /common/discovery/instance`` says that the authority knows no other. Any tenant will do.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from aiohttp import web

from servicebus_emulator.admin.pages import Page
from servicebus_emulator.security.bearer import ClientError

if TYPE_CHECKING:
    from servicebus_emulator.security.bearer import IssuedToken, TokenIssuer

__all__ = ["token_pages"]

_TENANT: Final = r"/{tenant:[A-Za-z0-9.-]+}"
_FORM: Final = "application/x-www-form-urlencoded"
_GRANT: Final = "client_credentials"

_log = logging.getLogger(__name__)


def token_pages(issuer: TokenIssuer) -> tuple[Page, ...]:
    """Return the pages that are the token endpoint.

    :param issuer: issues the tokens.
    """

    async def configuration(request: web.Request) -> web.Response:
        base = f"{request.scheme}://{request.host}/{request.match_info['tenant']}"
        return web.json_response(
            {
                "issuer": f"{base}/v2.0",
                "authorization_endpoint": f"{base}/oauth2/v2.0/authorize",
                "token_endpoint": f"{base}/oauth2/v2.0/token",
                "token_endpoint_auth_methods_supported": ["client_secret_post"],
                "grant_types_supported": [_GRANT],
                "response_types_supported": ["token"],
                "subject_types_supported": ["pairwise"],
                "id_token_signing_alg_values_supported": ["ES256"],
            }
        )

    async def instance(request: web.Request) -> web.Response:
        wanted = request.query.get("authorization_endpoint", "")
        tenant_endpoint = wanted.replace("/oauth2/v2.0/authorize", "/v2.0/.well-known/openid-configuration")
        host = {"preferred_network": request.host, "preferred_cache": request.host, "aliases": [request.host]}
        return web.json_response({"tenant_discovery_endpoint": tenant_endpoint, "metadata": [host]})

    async def token(request: web.Request) -> web.Response:
        try:
            issued = await _issue(request, issuer=issuer)
        except ClientError as error:
            _log.warning("token endpoint: a client was refused: %s", error.code)
            return web.json_response({"error": error.code, "error_description": str(error)}, status=error.status)
        body = {"token_type": "Bearer", "expires_in": issued.lifetime, "ext_expires_in": issued.lifetime}
        return web.json_response({**body, "access_token": issued.text}, headers={"Cache-Control": "no-store"})

    return (
        Page(method="GET", path=f"{_TENANT}/v2.0/.well-known/openid-configuration", answer=configuration, public=True),
        Page(method="GET", path="/common/discovery/instance", answer=instance, public=True),
        Page(method="POST", path=f"{_TENANT}/oauth2/v2.0/token", answer=token, public=True),
    )


async def _issue(request: web.Request, *, issuer: TokenIssuer) -> IssuedToken:
    if request.content_type != _FORM:
        raise ClientError("invalid_request", f"AADSTS900144: Content-Type must be {_FORM}.", status=400)
    try:
        form = {name: str(value) for name, value in (await request.post()).items()}
    except (UnicodeError, LookupError) as error:
        raise ClientError("invalid_request", "AADSTS900144: The form is not readable.", status=400) from error
    if form.get("grant_type") != _GRANT:
        message = f"AADSTS70003: The grant type is not supported; allowed: {_GRANT}"
        raise ClientError("unsupported_grant_type", message, status=400)
    tenant = request.match_info["tenant"]
    return issuer.issue(
        form.get("client_id", ""),
        form.get("client_secret", ""),
        scope=form.get("scope", ""),
        tenant=tenant,
        issuer=f"{request.scheme}://{request.host}/{tenant}/v2.0",
    )
