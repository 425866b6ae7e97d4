"""Ways to send from a DAG: literal messages, a file, another task's result, and a function that yields."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, task

from servicebus_pair.assets import pair_asset
from servicebus_pair.hooks.servicebus_pair import ServiceBusPairHook
from servicebus_pair.operators.send import ServiceBusPairSendOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
HOME = Path(os.environ.get("SERVICEBUS_PAIR_HOME", ".")).resolve()

DOCS = """
### Ways to send

Each task sends messages to the queue of the form, or to the backlog while the primary is down: at least once, with
message ids that a retry repeats.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | id of the connection; default `contoso_pair` |
| `SERVICEBUS_PAIR_HOME` | environment | folder for the example's file |
| trigger form | | the queue or topic |
"""

with DAG(
    "servicebus_pair_sends",
    schedule=None,
    # Triggered by hand only: while the DAG is paused, a triggered run would stay queued.
    is_paused_upon_creation=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    params={"queue": Param("briefings", type="string", minLength=1, title="Queue or topic")},
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [START send_values]
    values = ServiceBusPairSendOperator(
        task_id="values",
        servicebus_pair_conn_id=CONN_ID,
        entity="{{ params.queue }}",
        messages=[
            "Runway 22L is closed.",
            {"body": "Runway 22L is open.", "message_id": "22L-{{ run_id }}", "time_to_live": 600},
        ],
        # For messages that do not set these fields.
        defaults={"session_id": "22L", "subject": "runway", "application_properties": {"airport": "JFK"}},
    )
    # [END send_values]

    @task
    def write_file(run_id: Any = None) -> str:
        """Write messages to a file, as another system would."""
        file = HOME / f"briefings-{run_id.replace(':', '')}.jsonl"
        file.write_text(
            "".join(json.dumps({"body": f"Gate {gate} is open.", "session_id": "gates"}) + "\n" for gate in range(100))
        )
        return str(file)

    # [START send_file]
    # A local path, or a URL such as s3://bucket/briefings.jsonl.gz with its storage_conn_id.
    from_file = ServiceBusPairSendOperator(
        task_id="from_file", servicebus_pair_conn_id=CONN_ID, entity="{{ params.queue }}", path=write_file()
    )
    # [END send_file]

    @task
    def delays() -> list[dict[str, Any]]:
        """Return messages; only a few, because they pass through XCom."""
        return [{"body": "UA1545 leaves at 06:15.", "session_id": "UA1545", "content_type": "text/plain"}]

    # [START send_output]
    from_task = ServiceBusPairSendOperator(
        task_id="from_task", servicebus_pair_conn_id=CONN_ID, entity="{{ params.queue }}", messages=delays()
    )
    # [END send_output]

    # [START send_decorator]
    @task.servicebus_send(servicebus_pair_conn_id=CONN_ID, entity="{{ params.queue }}", defaults={"session_id": "crew"})
    def crews(number: int) -> Iterator[str | dict[str, Any]]:
        """Yield messages; they are sent in chunks, so there may be millions."""
        for crew in range(number):
            yield {"body": f"Crew {crew}, report to gate 7.", "subject": "crew"}

    # [END send_decorator]

    # [START send_hook]
    # The inlet lets the task see and share the health of the entities.
    @task(inlets=[pair_asset(CONN_ID)])
    def gates(params: Any = None) -> int:
        """Send from a plain task, as two sends over one open pair."""
        with ServiceBusPairHook(CONN_ID).get_conn() as pair:
            opened = pair.send(params["queue"], [{"body": {"gate": gate, "open": True}} for gate in range(10)])
            closed = pair.send(params["queue"], {"body": {"gate": 10, "open": False}, "subject": "gate"})
        return opened.sent + closed.sent

    # [END send_hook]

    crews(100)
    gates()
