"""The OAuth 2.0 token endpoint, as azure-identity's client-secret credential uses it.

``GET /{tenant}/v2.0/.well-known/openid-configuration`` returns the metadata (OpenID Connect Discovery 1.0),
``POST /{tenant}/oauth2/v2.0/token`` issues a token for a client id and secret (RFC 6749, section 4.4), and
``GET /common/discovery/instance`` lists this authority alone. Any tenant is accepted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

from aiohttp import web

from servicebus_emulator.admin.access_control import Route
from servicebus_emulator.admin.http_requests import MAX_FORM_BYTES, read_body
from servicebus_emulator.security.bearer import ClientError

if TYPE_CHECKING:
    from servicebus_emulator.security.bearer import IssuedToken, TokenIssuer

_TENANT: Final = r"/{tenant:[A-Za-z0-9.-]+}"
_METADATA_PATH: Final = "/v2.0/.well-known/openid-configuration"
_FORM: Final = "application/x-www-form-urlencoded"
_GRANT: Final = "client_credentials"

_log = logging.getLogger(__name__)


def token_routes(issuer: TokenIssuer) -> tuple[Route, ...]:
    """Return the routes of the token endpoint."""

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
        endpoint = request.query.get("authorization_endpoint", "")
        tenant_endpoint = endpoint.replace("/oauth2/v2.0/authorize", _METADATA_PATH)
        host = {"preferred_network": request.host, "preferred_cache": request.host, "aliases": [request.host]}
        return web.json_response({"tenant_discovery_endpoint": tenant_endpoint, "metadata": [host]})

    async def token(request: web.Request) -> web.Response:
        try:
            issued = await _issue(request, issuer=issuer)
        except ClientError as error:
            _log.warning("token endpoint: refused a client: %s", error.code)
            return web.json_response({"error": error.code, "error_description": str(error)}, status=error.status)
        body = {"token_type": "Bearer", "expires_in": issued.lifetime, "ext_expires_in": issued.lifetime}
        return web.json_response({**body, "access_token": issued.text}, headers={"Cache-Control": "no-store"})

    return (
        Route(method="GET", path=_TENANT + _METADATA_PATH, handler=configuration, public=True),
        Route(method="GET", path="/common/discovery/instance", handler=instance, public=True),
        Route(method="POST", path=f"{_TENANT}/oauth2/v2.0/token", handler=token, public=True),
    )


async def _issue(request: web.Request, *, issuer: TokenIssuer) -> IssuedToken:
    if request.content_type != _FORM:
        raise ClientError("invalid_request", f"AADSTS900144: Content-Type must be {_FORM}.", status=400)
    body = await read_body(request, limit=MAX_FORM_BYTES)
    try:
        form = dict(parse_qsl(body.decode(request.charset or "utf-8"), keep_blank_values=True))
    except (UnicodeError, LookupError) as error:
        raise ClientError("invalid_request", "AADSTS900144: The form cannot be read.", status=400) from error
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
