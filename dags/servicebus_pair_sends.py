"""Ways to send from a DAG: values, a file, what another task returns, what a function yields."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Param, task

from servicebus_pair.operators.send import ServiceBusPairSendOperator

CONN_ID = os.environ.get("SERVICEBUS_PAIR_CONN_ID", "contoso_pair")
HOME = Path(os.environ.get("SERVICEBUS_PAIR_HOME", ".")).resolve()

DOCS = """
### Ways to send

Each task sends to the queue of the form, failover-aware, at least once, with ids that a retry repeats.

| setting | where | |
|---|---|---|
| `SERVICEBUS_PAIR_CONN_ID` | environment | the connection, `contoso_pair` if not set |
| `SERVICEBUS_PAIR_HOME` | environment | where the example's file is written |
| the form | Trigger | the queue |
"""

with DAG(
    "servicebus_pair_sends",
    schedule=None,
    # Only people start it: while it was paused they would wait in vain.
    is_paused_upon_creation=False,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=10)},
    params={"queue": Param("briefings", type="string", minLength=1, title="Queue or topic")},
    doc_md=DOCS,
    tags=["servicebus_pair", "example"],
):
    # [START send_values]
    values = ServiceBusPairSendOperator(
        task_id="values",
        conn_id=CONN_ID,
        entity="{{ params.queue }}",
        messages=[
            "Runway 22L is closed.",
            {"body": "Runway 22L is open.", "message_id": "22L-{{ run_id }}", "time_to_live": 600},
        ],
        # What every message has that says nothing else.
        defaults={"session_id": "22L", "subject": "runway", "application_properties": {"airport": "JFK"}},
    )
    # [END send_values]

    @task
    def write_file(run_id: str) -> str:
        """Write messages to a file, as another system would."""
        file = HOME / f"briefings-{run_id.replace(':', '')}.jsonl"
        file.write_text(
            "".join(json.dumps({"body": f"Gate {gate} is open.", "session_id": "gates"}) + "\n" for gate in range(100))
        )
        return str(file)

    # [START send_file]
    # A local path, or an address such as s3://bucket/briefings.jsonl.gz with its storage_conn_id.
    from_file = ServiceBusPairSendOperator(
        task_id="from_file", conn_id=CONN_ID, entity="{{ params.queue }}", path=write_file()
    )
    # [END send_file]

    @task
    def delays() -> list[dict[str, Any]]:
        """Return messages: they pass through XCom, so a few."""
        return [{"body": "UA1545 leaves at 06:15.", "session_id": "UA1545", "content_type": "text/plain"}]

    # [START send_output]
    from_task = ServiceBusPairSendOperator(
        task_id="from_task", conn_id=CONN_ID, entity="{{ params.queue }}", messages=delays()
    )
    # [END send_output]

    # [START send_decorator]
    @task.servicebus_send(conn_id=CONN_ID, entity="{{ params.queue }}", defaults={"session_id": "crew"})
    def crews(number: int) -> Iterator[str | dict[str, Any]]:
        """Yielded messages are sent as they come: it may be millions."""
        for crew in range(number):
            yield {"body": f"Crew {crew}, report to gate 7.", "subject": "crew"}

    # [END send_decorator]

    crews(100)
