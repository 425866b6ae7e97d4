"""Requests that a page of another site makes, reasons that forge logs, and headers of every response."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from fastapi.testclient import TestClient

from servicebus_pair.airflow_runtime.validators import entity_path, entity_paths, storage_path, text
from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.ui.api import routes
from tests.airflow.conftest import CONN_ID, UNREACHABLE, define_connection
from tests.airflow.ui.support.page_client import PAIR_URL, auth_header, wait_for_pair
from tests.security.canaries import CANARIES, disclosed

ACTION = f"{PAIR_URL}/actions/pause_syphon"


@pytest.fixture(autouse=True)
def _known_pair(page: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    define_connection(monkeypatch, UNREACHABLE)
    wait_for_pair(page, lambda pair: pair["conn_id"] == CONN_ID)


@pytest.mark.parametrize(
    ("headers", "refused"),
    [
        ({}, False),
        ({"Origin": "http://testserver", "Sec-Fetch-Site": "same-origin"}, False),
        ({"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"}, True),
        ({"Origin": "https://evil.example"}, True),
        ({"Origin": "null"}, True),
        ({"Origin": "http://[testserver"}, True),
        ({"Origin": "http://testserver:81"}, True),
        ({"Origin": "http://testserver@evil.example"}, True),
        ({"Sec-Fetch-Site": "same-site"}, True),
    ],
)
def test_pages_of_other_sites_may_not_act(page: TestClient, headers: dict[str, str], refused: bool):
    response = page.post(ACTION, headers=headers, json={"reason": "a test"})

    # Accepted, or 409 where no DAG uses the pair.
    assert response.status_code in ({403} if refused else {202, 409})


@pytest.mark.parametrize(
    "forged",
    ["a\nERROR root: b", "a\rb", "a\x1b[2Jb", "a\x00b", "a\u2028b", "a\x85b", "a\u202eb", "a\u2066b", "a\u200fb"],
)
def test_reasons_and_names_that_forge_lines_of_logs_are_refused(page: TestClient, forged: str):
    response = page.post(ACTION, json={"reason": forged})

    assert response.status_code == 422
    for check in (text, entity_path):
        with pytest.raises(ConfigurationError, match="control characters") as refused:
            check("reason", forged)
        assert forged not in str(refused.value)


@pytest.mark.parametrize("canary", [*map(str, CANARIES.values())], ids=CANARIES)
def test_secrets_in_reasons_names_and_paths_are_refused_and_not_repeated(page: TestClient, canary: str):
    response = page.post(ACTION, json={"reason": canary})

    assert (response.status_code, disclosed(response.text)) == (422, False)
    for check in (text, entity_path, entity_paths, storage_path):
        with pytest.raises(ConfigurationError, match=r"reason holds .*, which is not shown") as refused:
            check("reason", canary)
        assert not disclosed(str(refused.value))


@pytest.mark.parametrize(("disconnects", "answered"), [(False, 408), (True, 400)])
def test_bodies_that_are_half_sent_are_given_up(
    api_server: TestClient, page: TestClient, monkeypatch: pytest.MonkeyPatch, disconnects: bool, answered: int
):
    monkeypatch.setattr(routes, "_BODY_SECONDS", 0.3)
    headers = {**auth_header(api_server, "admin"), "Content-Type": "application/json", "Content-Length": "60000"}
    scope: dict[str, Any] = {"type": "http", "http_version": "1.1", "method": "POST", "path": ACTION}
    scope |= {"query_string": b"", "scheme": "http"}
    scope["headers"] = [(name.lower().encode(), value.encode()) for name, value in headers.items()]

    async def attack() -> list[int]:
        async def post() -> int:
            parts = [{"type": "http.request", "body": b'{"reason": "', "more_body": True}]
            answers: list[dict[str, Any]] = []

            async def receive() -> dict[str, Any]:
                if not parts and disconnects:
                    return {"type": "http.disconnect"}
                if not parts:
                    await asyncio.Event().wait()
                return parts.pop()

            async def send(message: Any) -> None:
                answers.append(message)

            await page.app({**scope, "state": {}}, receive, send)
            return int(answers[0]["status"])

        async with asyncio.timeout(20):
            return await asyncio.gather(*(post() for _ in range(50)))

    assert asyncio.run(attack()) == [answered] * 50
