"""Who may see and do what on the page of the pairs, and that nothing on it runs what others wrote."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from tests.airflow.conftest import CONN_ID, KEY
from tests.airflow.pages import connection_to_nowhere, token

if TYPE_CHECKING:
    from fastapi.testclient import TestClient

PREFIX = "/servicebus-pairs"
ACT = f"{PREFIX}/api/pairs/{CONN_ID}/actions/pause_syphon"
READ = [
    "/",
    "/static/page.js",
    "/api/snapshot",
    f"/api/pairs/{CONN_ID}",
    f"/api/pairs/{CONN_ID}/reports/servicebus_pair_recovery/manual__1",
]
ABSENT = [
    "/docs",
    "/redoc",
    "/openapi.json",
    "/static/plugin.py",
    "/static/..%2fapi.py",
    "/api/none",
    "/api/pairs/none",
]


@pytest.fixture(scope="module", autouse=True)
def pair(api_server: TestClient) -> Iterator[None]:
    """A connection to two namespaces that are not there, which matters to nobody here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(f"AIRFLOW_CONN_{CONN_ID.upper()}", connection_to_nowhere())
        known(api_server)
        yield


def known(api_server: TestClient) -> dict[str, Any]:
    """The whole answer, once the pair is in it."""
    deadline = time.monotonic() + 20
    while True:
        answer: dict[str, Any] = api_server.get(f"{PREFIX}/api/snapshot", headers=token(api_server, "vic")).json()
        if answer["snapshot"]["pairs"]:
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(0.1)


@pytest.mark.parametrize("path", [*READ, *ABSENT])
def test_nothing_is_open_to_those_who_are_not_signed_in(api_server: TestClient, path: str):
    answer = api_server.get(PREFIX + path)

    assert (answer.status_code, answer.json()) == (401, {"detail": "Not authenticated"})


@pytest.mark.parametrize("body", [b'{"reason": "x"}', b"{", b""])
def test_nothing_is_done_for_those_who_are_not_signed_in(api_server: TestClient, body: bytes):
    answer = api_server.post(ACT, content=body, headers={"Content-Type": "application/json"})

    assert (answer.status_code, answer.json()) == (401, {"detail": "Not authenticated"})


@pytest.mark.parametrize("user", ["vic", "una"])
def test_a_viewer_and_a_user_look_and_do_not_act_whatever_they_send(api_server: TestClient, user: str):
    signed_in = token(api_server, user)

    seen = api_server.get(f"{PREFIX}/api/snapshot", headers=signed_in)
    answers = [
        api_server.post(ACT, headers=signed_in, json=body) for body in ({"reason": "why not"}, {"nonsense": 1}, [])
    ]

    assert (seen.status_code, seen.json()["user"], seen.json()["may_act"]) == (200, user, False)
    assert [answer.status_code for answer in answers] == [403, 403, 403]
    assert all("detail" in answer.json() for answer in answers)


@pytest.mark.parametrize("user", ["otto", "admin"])
def test_an_op_and_an_admin_may_act(api_server: TestClient, user: str):
    signed_in = token(api_server, user)

    assert api_server.get(f"{PREFIX}/api/snapshot", headers=signed_in).json()["may_act"] is True
    # Not 401 or 403: what keeps it from being done is the pair, which no DAG uses yet.
    answer = api_server.post(
        f"{PREFIX}/api/pairs/{CONN_ID}/actions/provision", headers=signed_in, json={"reason": "a new pair"}
    )
    assert answer.status_code in (202, 409)


def test_a_cookie_signs_in_as_the_browser_does_and_opens_nothing_more(api_server: TestClient):
    bearer = token(api_server, "vic")["Authorization"].removeprefix("Bearer ")

    seen = api_server.get(f"{PREFIX}/api/snapshot", cookies={"_token": bearer})
    refused = api_server.post(ACT, cookies={"_token": bearer}, json={"reason": "x"})
    api_server.cookies.clear()

    assert (seen.status_code, refused.status_code) == (200, 403)


@pytest.mark.parametrize(
    ("action", "body", "field"),
    [
        ("pause_syphon", {}, "reason"),
        ("pause_syphon", {"reason": "   "}, "reason"),
        ("pause_syphon", {"reason": 1}, "reason"),
        ("pause_syphon", {"reason": "x" * 501}, "reason"),
        ("pause_syphon", {"reason": "x", "force": True}, "force"),
        ("pause_syphon", [], "body"),
        ("throttle_syphon", {"reason": "x", "rate": 0}, "rate"),
        ("throttle_syphon", {"reason": "x", "rate": "fast"}, "rate"),
        ("fail_over", {"reason": "x"}, "entities"),
        ("fail_over", {"reason": "x", "entities": []}, "entities"),
        ("fail_over", {"reason": "x", "entities": ["flights", ""]}, "entities.1"),
        ("fail_over", {"reason": "x", "entities": ["flights"], "hold_minutes": -1}, "hold_minutes"),
        ("drill", {"reason": "x", "entities": ["flights"], "messages": 10_001}, "messages"),
        ("plan_cleanup", {"reason": "x", "what": "everything"}, "what"),
    ],
)
def test_a_body_of_another_shape_is_refused_and_the_field_named(
    api_server: TestClient,
    action: str,
    body: object,
    field: str,
):
    answer = api_server.post(
        f"{PREFIX}/api/pairs/{CONN_ID}/actions/{action}", headers=token(api_server, "admin"), json=body
    )

    assert answer.status_code == 422
    assert [each["field"] for each in answer.json()["detail"]] == [field]


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b'{"reason": "x"', "application/json", 422),
        (b'{"reason": "x"}', "text/plain", 415),
        (b"reason=x", "application/x-www-form-urlencoded", 415),
        (b'{"reason": "' + b"x" * 70_000 + b'"}', "application/json", 413),
    ],
)
def test_what_is_no_json_of_a_sensible_size_is_refused(
    api_server: TestClient,
    content: bytes,
    kind: str,
    status: int,
):
    headers = {**token(api_server, "admin"), "Content-Type": kind}

    answer = api_server.post(ACT, headers=headers, content=content)

    assert answer.status_code == status
    assert answer.json()["detail"]


@pytest.mark.parametrize("path", ABSENT)
def test_what_is_not_there_is_not_found_and_says_so_in_json(api_server: TestClient, path: str):
    answer = api_server.get(PREFIX + path, headers=token(api_server, "admin"))

    assert answer.status_code == 404
    assert answer.json()["detail"]


@pytest.mark.parametrize("path", ["pairs/none/actions/pause_syphon", f"pairs/{CONN_ID}/actions/explode"])
def test_an_unknown_pair_and_an_unknown_action_are_not_found(api_server: TestClient, path: str):
    answer = api_server.post(f"{PREFIX}/api/{path}", headers=token(api_server, "admin"), json={"reason": "x"})

    assert answer.status_code == 404
    assert "there is no" in answer.json()["detail"]


def test_the_key_of_the_namespaces_is_in_no_answer(api_server: TestClient):
    answer = known(api_server)
    signed_in = token(api_server, "admin")
    answers = [api_server.get(PREFIX + path, headers=signed_in).text for path in READ]

    assert KEY not in json.dumps(answer) + "".join(answers)


def test_the_page_lets_nothing_run_and_load_but_its_own_files(api_server: TestClient):
    signed_in = token(api_server, "vic")

    answer = api_server.get(f"{PREFIX}/", headers=signed_in)

    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "<script>" not in answer.text
    assert "http" not in answer.text.replace("http-equiv", "")
    assert answer.headers["x-content-type-options"] == "nosniff"
