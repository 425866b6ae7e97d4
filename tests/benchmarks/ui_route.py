"""Measures the page's data route on an API server with 20 pairs of 50 entities; prints the result as JSON.

The group ``ui`` runs it as a separate process with an empty Airflow.
"""

from __future__ import annotations

import json
import os
import socket
import statistics
import threading
import time
from pathlib import Path
from typing import Any, Final

import httpx

PAIRS: Final = 20
ENTITIES: Final = 50
REQUESTS: Final = 200
SECONDS: Final = 12.0  # more than two refresh intervals of the cache
KEY: Final = "Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=Root;SharedAccessKey=x;UseDevelopmentEmulator=true;"


def main() -> None:
    """Fill the database, start the server and send requests."""
    fill()
    url = start()
    with httpx.Client(base_url=url, timeout=30) as client:
        token = client.post("/auth/token", json={"username": "admin", "password": "admin"}).json()["access_token"]
        client.headers["Authorization"] = f"Bearer {token}"
        size = wait_until_loaded(client)
        seconds = [request(client) for _ in range(REQUESTS)]
    figures = {"bytes": size, "median_ms": statistics.median(seconds) * 1000, "slowest_ms": max(seconds) * 1000}
    print(json.dumps(figures))  # noqa: T201 - the result


def request(client: httpx.Client) -> float:
    """Send a request and return its seconds; spread requests over several refreshes of the cache."""
    started = time.perf_counter()
    client.get("/servicebus-pairs/api/snapshot").raise_for_status()
    seconds = time.perf_counter() - started
    time.sleep(SECONDS / REQUESTS)
    return seconds


def wait_until_loaded(client: httpx.Client) -> int:
    """Wait until the cache has every pair; return the size of the response in bytes."""
    while True:
        response = client.get("/servicebus-pairs/api/snapshot").raise_for_status()
        pairs = response.json()["snapshot"]["pairs"]
        if len(pairs) == PAIRS and all(pair["primary"]["reachable"] is not None for pair in pairs):
            return len(response.content)
        time.sleep(0.2)


def fill() -> None:
    """Create an asset with the state of 50 entities for each pair, and connections as environment variables."""
    from airflow.models.asset import AssetModel
    from airflow.models.asset_state_store import AssetStateStoreModel
    from airflow.utils.db import initdb
    from airflow.utils.session import create_session

    from servicebus_pair.core.model.health_state import EntityHealth, HealthState

    initdb()
    Path(os.environ["AIRFLOW_HOME"], "passwords.json").write_text(json.dumps({"admin": "admin"}))
    down = EntityHealth(
        HealthState.FAILED_OVER, time.time() - 60, time.time(), "UnreachableError: connection refused", "send"
    )
    with create_session() as session:
        for number in range(PAIRS):
            conn_id = f"pair_{number:02}"
            os.environ[f"AIRFLOW_CONN_{conn_id.upper()}"] = json.dumps(
                {"conn_type": "servicebus_pair", "extra": extra()}
            )
            asset = AssetModel(name=f"servicebus_pair.{conn_id}", uri=f"servicebus-pair://{conn_id}", group="")
            session.add(asset)
            session.flush()
            for entity in range(ENTITIES):
                value = json.dumps(down.to_json())
                session.add(AssetStateStoreModel(asset_id=asset.id, key=f"health/entity-{entity}", value=value))


def extra() -> dict[str, Any]:
    return {
        f"{side}_{name}": value
        for side, port in (("primary", 1), ("secondary", 2))
        for name, value in {"connection_string": KEY.format(port=port), "namespace": f"contoso-{side}"}.items()
    }


def start() -> str:
    """Start the API server in a thread of this process; return its address."""
    import uvicorn
    from airflow.api_fastapi.app import create_app

    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(create_app(), log_level="error"))
    threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True).start()
    while not server.started:
        time.sleep(0.05)
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


if __name__ == "__main__":
    main()
