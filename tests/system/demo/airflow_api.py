"""Client of Airflow's REST API."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import httpx

FINISHED = frozenset({"success", "failed"})


@dataclass(frozen=True, slots=True)
class DagRun:
    dag_id: str
    run_id: str
    state: str

    @property
    def path(self) -> str:
        return f"/api/v2/dags/{self.dag_id}/dagRuns/{self.run_id}"

    @property
    def finished(self) -> bool:
        return self.state in FINISHED


class AirflowApi:
    """A signed-in client of the stable REST API (v2) of one Airflow."""

    def __init__(self, base_url: str, *, user: str, password: str) -> None:
        self.http = httpx.Client(base_url=base_url, timeout=60)
        self._user = user
        self._password = password

    def sign_in(self) -> None:
        """Get a token for all later requests."""
        credentials = {"username": self._user, "password": self._password}
        response = self.http.post("/auth/token", json=credentials).raise_for_status()
        self.http.headers["Authorization"] = f"Bearer {response.json()['access_token']}"

    def unhealthy_components(self) -> list[str]:
        """Return the unhealthy components; all of them while the API server does not respond."""
        components = ["metadatabase", "scheduler", "triggerer", "dag_processor"]
        try:
            response = self.http.get("/api/v2/monitor/health")
        except httpx.TransportError:
            return ["api_server", *components]
        if response.status_code != httpx.codes.OK:
            return ["api_server", *components]
        health = response.json()
        return [name for name in components if (health.get(name) or {}).get("status") != "healthy"]

    def has_dag(self, dag_id: str) -> bool:
        """Return whether the DAG has been parsed. :raises RuntimeError: a DAG file has import errors."""
        response = self.http.get(f"/api/v2/dags/{dag_id}")
        if response.status_code == httpx.codes.OK:
            return True
        errors = self._get("/api/v2/importErrors")["import_errors"]
        if errors:
            raise RuntimeError(f"Airflow cannot import {errors[0]['filename']}:\n{errors[0]['stack_trace']}")
        return False

    def wait_for_dag(self, dag_id: str, *, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.has_dag(dag_id):
            if time.monotonic() > deadline:
                raise RuntimeError(f"Airflow has not parsed the DAG {dag_id!r} within {seconds:.0f} s")
            time.sleep(0.5)

    def trigger(self, dag_id: str, *, conf: dict[str, Any]) -> DagRun:
        body = {"logical_date": None, "conf": conf}
        response = self.http.post(f"/api/v2/dags/{dag_id}/dagRuns", json=body).raise_for_status()
        return run_of(response.json())

    def run(self, run: DagRun) -> DagRun:
        return run_of(self._get(run.path))

    def runs(self, dag_id: str) -> list[DagRun]:
        """Return all runs of a DAG, newest first."""
        response = self._get(f"/api/v2/dags/{dag_id}/dagRuns", order_by="-id")
        return [run_of(item) for item in response["dag_runs"]]

    def tasks(self, run: DagRun) -> dict[str, str]:
        """Return the state of each task of a run, ``waiting`` if it has none.

        A mapped task is ``running`` if any of its instances is.
        """
        # Running instances come last, so that they override the others of their task.
        items = sorted(self._instances(run), key=lambda item: item["state"] == "running")
        return {item["task_id"]: item["state"] or "waiting" for item in items}

    def states(self, run: DagRun) -> Counter[str]:
        found: Counter[str] = Counter()
        while True:
            path = f"{run.path}/taskInstances"
            response = self._get(path, limit="100", offset=str(found.total()))
            found.update(item["state"] or "waiting" for item in response["task_instances"])
            if not response["task_instances"] or found.total() >= response["total_entries"]:
                return found

    def instance(self, run: DagRun, task_id: str) -> str:
        """Return the id of a task instance; of a mapped task, of a running one."""
        instances = [item for item in self._instances(run) if item["task_id"] == task_id]
        running = [item for item in instances if item["state"] == "running"]
        return str((running or instances)[0]["id"])

    def tries(self, run: DagRun) -> dict[tuple[str, int], int]:
        """Return the try number of each task instance, by task id and map index."""
        return {(item["task_id"], item["map_index"]): item["try_number"] for item in self._instances(run)}

    def result(self, run: DagRun, task_id: str, *, map_index: int = -1) -> Any:
        path = f"{run.path}/taskInstances/{task_id}/xcomEntries/return_value"
        return self._get(path, map_index=str(map_index))["value"]

    def asset_state(self, name: str) -> dict[str, Any]:
        [asset] = [item for item in self._get("/api/v2/assets", name_pattern=name)["assets"] if item["name"] == name]
        response = self._get(f"/api/v2/assets/{asset['id']}/state-store", limit="100")
        return {item["key"]: item["value"] for item in response["asset_state_store"]}

    def asset_events(self, run: DagRun) -> list[tuple[str, dict[str, Any]]]:
        """Return URI and extra of each asset event that a run emitted."""
        response = self._get("/api/v2/assets/events", source_dag_id=run.dag_id, source_run_id=run.run_id)
        return [(item["uri"], item["extra"]) for item in response["asset_events"]]

    def upstream_runs(self, run: DagRun) -> list[str]:
        """Return the ids of the runs whose asset events started a run."""
        response = self._get(f"{run.path}/upstreamAssetEvents")
        return [item["source_run_id"] for item in response["asset_events"]]

    def respond(self, run: DagRun, task_id: str, option: str) -> None:
        """Respond to a human-in-the-loop task."""
        path = f"{run.path}/taskInstances/{task_id}/-1/hitlDetails"
        self.http.patch(path, json={"chosen_options": [option], "params_input": {}}).raise_for_status()

    def mark_failed(self, run: DagRun, task_id: str) -> None:
        path = f"{run.path}/taskInstances/{task_id}"
        self.http.patch(path, json={"new_state": "failed"}).raise_for_status()

    def clear(self, run: DagRun, task_id: str) -> None:
        """Clear a task and its downstream tasks."""
        body = {
            "dry_run": False,
            "dag_run_id": run.run_id,
            "task_ids": [task_id],
            "only_failed": False,
            "include_downstream": True,
        }
        self.http.post(f"/api/v2/dags/{run.dag_id}/clearTaskInstances", json=body).raise_for_status()

    def pause(self, dag_id: str, *, paused: bool) -> None:
        self.http.patch(f"/api/v2/dags/{dag_id}", json={"is_paused": paused}).raise_for_status()

    def _instances(self, run: DagRun) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._get(f"{run.path}/taskInstances")["task_instances"]
        return found

    def _get(self, path: str, **parameters: str) -> Any:
        return self.http.get(path, params=parameters).raise_for_status().json()


def run_of(item: dict[str, Any]) -> DagRun:
    return DagRun(item["dag_id"], item["dag_run_id"], item["state"])
