"""Every route of the page's route table by every identity, and hostile values in every parameter of every path.

A new route without a row in ``ROWS`` fails.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from typing import Any, Final

import jwt
import pytest
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from servicebus_pair.ui.api.routes import build_app
from servicebus_pair.ui.cache.refresh_cache import RefreshCache
from servicebus_pair.ui.view.action_catalogue import ActionName
from tests.airflow.conftest import UNREACHABLE, define_connection
from tests.airflow.ui.support.page_client import USERS, auth_header

PREFIX: Final = "/servicebus-pairs"
# A pair of this module's own: no DAG of another test uses it.
CONN_ID: Final = "routes_pair"
READERS: Final = dict.fromkeys(USERS, 200)
NOBODY_FINDS: Final = dict.fromkeys(USERS, 404)
# Without a DAG that uses the pair an action is not possible, which is said to those only who may act.
ACTORS: Final = {"admin": 409, "otto": 409, "una": 403, "vic": 403}
# What each signed-in identity gets; all others get 401 or 403.
ROWS: Final = {
    "GET /": READERS,
    "GET /static/{name}": READERS,
    "GET /api/snapshot": READERS,
    "GET /api/pairs/{conn_id}": READERS,
    "GET /api/pairs/{conn_id}/reports/{dag_id}/{run_id:path}": NOBODY_FINDS,
    "POST /api/pairs/{conn_id}/actions/{action}": ACTORS,
    **{f"{method} /{{path:path}}": NOBODY_FINDS for method in ("GET", "POST", "PUT", "PATCH", "DELETE")},
}
VALUES: Final = {
    "name": "page.js",
    "conn_id": CONN_ID,
    "dag_id": "flights_recovery",
    "run_id:path": "manual__1",
    "action": ActionName.PAUSE_SYPHON.value,
    "path:path": "nothing/here",
}
HOSTILE: Final = [
    *("..", "../../../../etc/passwd", "..%2f..%2f..%2fetc%2fpasswd", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "/etc/passwd"),
    *("..%5c..%5cwindows", "%00", "page.js%00.html", "%0d%0aSet-Cookie:%20a=b", "%ff%fe", "%ed%a0%80", "x" * 5000),
    *("<script>alert(1)</script>", "%3Cscript%3Ealert(1)%3C/script%3E", "' OR 1=1 --", "{conn_id}", "*", "%25s%25n"),
]


def routes() -> list[str]:
    app = build_app(RefreshCache(interval=60))
    return [f"{method} {each.path}" for each in app.routes if isinstance(each, APIRoute) for method in each.methods]


@pytest.fixture(scope="module")
def server(api_server: TestClient) -> Iterator[TestClient]:
    """Airflow's API server, which knows the pair."""
    with pytest.MonkeyPatch.context() as patch:
        define_connection(patch, UNREACHABLE, conn_id=CONN_ID)
        headers = auth_header(api_server, "vic")
        deadline = time.monotonic() + 40
        while api_server.get(f"{PREFIX}/api/pairs/{CONN_ID}", headers=headers).status_code != 200:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        yield api_server


def forged_tokens(valid: str, viewer: str) -> dict[str, str]:
    """Tokens that look like a valid one of an admin."""
    header, claims = jwt.get_unverified_header(valid), jwt.decode(valid, options={"verify_signature": False})
    secret, algorithm, now = os.environ["AIRFLOW__API_AUTH__JWT_SECRET"], header["alg"], int(time.time())

    def signed(key: str = secret, *, without: str = "", **changes: Any) -> str:
        changed = {name: value for name, value in {**claims, **changes}.items() if name != without}
        return jwt.encode(changed, key, algorithm=algorithm, headers=header)

    (head, admin, _), (_, _, signature) = valid.split("."), viewer.split(".")
    return {
        "another key": signed("k" * 64),
        "no key": jwt.encode(claims, "", algorithm="none"),
        "other claims": f"{head}.{admin}.{signature}",
        "expired": signed(exp=now - 60, iat=now - 120, nbf=now - 120),
        "not yet valid": signed(nbf=now + 3600),
        "never expires": signed(without="exp"),
        "another audience": signed(aud="another"),
        "no token": "nothing",
        "empty": "",
    }


def request(server: TestClient, row: str, *, headers: dict[str, str], **values: str) -> Any:
    method, _, path = row.partition(" ")
    for name, value in {**VALUES, **values}.items():
        path = path.replace(f"{{{name}}}", value)
    body = None if method == "GET" else {"reason": "a test"}
    return server.request(method, PREFIX + path, headers=headers, json=body)


def test_the_table_has_a_row_for_each_route():
    assert sorted(routes()) == sorted(ROWS)
    assert {name for row in ROWS for name in VALUES if f"{{{name}}}" in row} == set(VALUES)
    assert all(part.strip("{}") in VALUES for row in ROWS for part in row.split("/") if part.startswith("{"))


@pytest.mark.parametrize("row", ROWS)
def test_each_identity_gets_what_the_table_says(server: TestClient, row: str):
    valid = {user: auth_header(server, user) for user in USERS}
    got = {user: request(server, row, headers=headers) for user, headers in valid.items()}
    tokens = forged_tokens(*(valid[user]["Authorization"].removeprefix("Bearer ") for user in ("admin", "vic")))
    refused = {"anonymous": request(server, row, headers={})}
    for name, token in tokens.items():
        refused[name] = request(server, row, headers={"Authorization": f"Bearer {token}"})
        refused[f"{name}, cookie"] = request(server, row, headers={"Cookie": f"_token={token}"})

    assert {user: response.status_code for user, response in got.items()} == ROWS[row]
    # Airflow answers 401 without a token and to an expired one, 403 to a forged one.
    assert {name: each.status_code for name, each in refused.items() if each.status_code not in {401, 403}} == {}
    assert {frozenset(each.json()) for each in refused.values()} == {frozenset({"detail"})}
    assert {each.headers["x-content-type-options"] for each in (*got.values(), *refused.values())} == {"nosniff"}


@pytest.mark.parametrize("action", ActionName)
def test_each_action_needs_the_right_to_write_and_a_page_of_this_site(server: TestClient, action: ActionName):
    row = "POST /api/pairs/{conn_id}/actions/{action}"
    valid = {user: auth_header(server, user) for user in USERS}
    sites = [{"Origin": "https://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}]

    got = {user: request(server, row, headers=each, action=action).status_code for user, each in valid.items()}
    foreign = [request(server, row, headers=valid["admin"] | site, action=action).status_code for site in sites]

    # 422: a form with more fields than a reason.
    assert {got["admin"], got["otto"]} <= {409, 422}
    assert [got["una"], got["vic"], *foreign] == [403] * 5


@pytest.mark.parametrize("row", [row for row in ROWS if "{" in row])
def test_no_value_in_a_path_reads_a_file_fails_the_server_or_comes_back_as_html(server: TestClient, row: str):
    headers = auth_header(server, "admin")
    bad = {}
    for name in (name for name in VALUES if f"{{{name}}}" in row):
        for hostile in HOSTILE:
            response = request(server, row, headers=headers, **{name: hostile})
            kind = response.headers.get("content-type", "").partition(";")[0]
            # A path that leads out of the page's prefix ends at Airflow's own pages.
            own = response.headers.get("x-content-type-options") == "nosniff"
            shown = response.text if own or response.status_code >= 500 else ""
            if response.status_code >= 500 or "root:" in shown or "set-cookie" in response.headers:
                bad[name, hostile] = response.status_code, shown[:200]
            if own and "<script>alert" in shown and kind != "application/json":
                bad[name, hostile] = kind, shown[:200]
    assert bad == {}
