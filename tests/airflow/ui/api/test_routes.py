"""Permissions, status codes and headers of the routes."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.airflow.conftest import CONN_ID, KEY, UNREACHABLE, define_connection
from tests.airflow.ui.support.page_client import auth_header

PREFIX = "/servicebus-pairs"
ACTION = f"{PREFIX}/api/pairs/{CONN_ID}/actions/pause_syphon"
READ = [
    "/",
    "/static/page.js",
    "/api/snapshot",
    f"/api/pairs/{CONN_ID}",
    f"/api/pairs/{CONN_ID}/reports/servicebus_pair_recovery/manual__1",
]
UNKNOWN = [
    "/docs",
    "/redoc",
    "/openapi.json",
    "/static/plugin.py",
    "/static/..%2fplugin.py",
    "/api/none",
    "/api/pairs/none",
]


@pytest.fixture(scope="module", autouse=True)
def _unreachable_pair(api_server: TestClient) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        define_connection(patch, UNREACHABLE)
        wait_for_snapshot(api_server)
        yield


def wait_for_snapshot(api_server: TestClient) -> dict[str, Any]:
    """Return the response once it contains the pair."""
    deadline = time.monotonic() + 20
    while True:
        response: dict[str, Any] = api_server.get(
            f"{PREFIX}/api/snapshot", headers=auth_header(api_server, "vic")
        ).json()
        if response["snapshot"]["pairs"]:
            return response
        assert time.monotonic() < deadline, response
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((PREFIX + path, None) for path in (*READ, *UNKNOWN)),
        *((ACTION, body) for body in (b'{"reason": "x"}', b"{", b"")),
    ],
)
def test_reading_and_acting_require_authentication(api_server: TestClient, path: str, body: bytes | None):
    headers = {"Content-Type": "application/json"}
    response = api_server.get(path) if body is None else api_server.post(path, content=body, headers=headers)

    assert (response.status_code, response.json()) == (401, {"detail": "Not authenticated"})


@pytest.mark.parametrize("user", ["vic", "una"])
def test_viewers_and_users_may_read_but_not_act(api_server: TestClient, user: str):
    headers = auth_header(api_server, user)

    seen = api_server.get(f"{PREFIX}/api/snapshot", headers=headers)
    bodies: list[Any] = [{"reason": "why not"}, {"nonsense": 1}, []]
    responses = [api_server.post(ACTION, headers=headers, json=body) for body in bodies]

    assert (seen.status_code, seen.json()["user"], seen.json()["may_act"]) == (200, user, False)
    assert [response.status_code for response in responses] == [403, 403, 403]
    assert all("detail" in response.json() for response in responses)


@pytest.mark.parametrize("user", ["otto", "admin"])
def test_ops_and_admins_may_act(api_server: TestClient, user: str):
    headers = auth_header(api_server, user)

    assert api_server.get(f"{PREFIX}/api/snapshot", headers=headers).json()["may_act"] is True
    # 409 because no DAG uses the pair, and not 401 or 403.
    response = api_server.post(
        f"{PREFIX}/api/pairs/{CONN_ID}/actions/provision", headers=headers, json={"reason": "a new pair"}
    )
    assert response.status_code in (202, 409)


def test_cookie_grants_the_same_permissions(api_server: TestClient):
    bearer = auth_header(api_server, "vic")["Authorization"].removeprefix("Bearer ")

    seen = api_server.get(f"{PREFIX}/api/snapshot", cookies={"_token": bearer})
    refused = api_server.post(ACTION, cookies={"_token": bearer}, json={"reason": "x"})
    api_server.cookies.clear()

    assert (seen.status_code, refused.status_code) == (200, 403)


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"reason": "x"', "application/json", 422),
        (b'{"reason": "x", "force": true}', "application/json", 422),
        (b'{"reason": "x"}', "text/plain", 415),
        (b"reason=x", "application/x-www-form-urlencoded", 415),
        (b'{"reason": "' + b"x" * 70_000 + b'"}', "application/json", 413),
    ],
)
def test_body_must_be_valid_json_of_limited_size(api_server: TestClient, content: bytes, kind: str, status: int):
    headers = {**auth_header(api_server, "admin"), "Content-Type": kind}

    response = api_server.post(ACTION, headers=headers, content=content)

    assert response.status_code == status
    assert response.json()["detail"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        *(("GET", path) for path in UNKNOWN),
        *(("POST", f"/api/pairs/{path}") for path in ("none/actions/pause_syphon", f"{CONN_ID}/actions/explode")),
    ],
)
def test_unknown_path_pair_or_action_is_404_in_json(api_server: TestClient, method: str, path: str):
    headers = auth_header(api_server, "admin")

    response = api_server.request(method, PREFIX + path, headers=headers, json={"reason": "x"})

    assert response.status_code == 404
    assert "there is no" in response.json()["detail"]


def test_no_response_contains_a_key(api_server: TestClient):
    response = wait_for_snapshot(api_server)
    headers = auth_header(api_server, "admin")
    responses = [api_server.get(PREFIX + path, headers=headers).text for path in READ]

    assert KEY not in json.dumps(response) + "".join(responses)


def test_page_policy_allows_only_its_own_files(api_server: TestClient):
    headers = auth_header(api_server, "vic")

    response = api_server.get(f"{PREFIX}/", headers=headers)

    policy = response.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "<script>" not in response.text
    assert "http" not in response.text.replace("http-equiv", "")
    assert response.headers["x-content-type-options"] == "nosniff"
