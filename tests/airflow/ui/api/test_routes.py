"""Permissions, status codes and headers of the routes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.airflow.conftest import CONN_ID, UNREACHABLE, define_connection
from tests.airflow.ui.support.page_client import auth_header

PREFIX = "/servicebus-pairs"
ACTION = f"{PREFIX}/api/pairs/{CONN_ID}/actions/pause_syphon"
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
