"""The steps of a walk, reported as one JSON object a line. Runs on every Python that a client needs."""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

HOST = "matrix.servicebus.windows.net"
POLICY = "RootManageSharedAccessKey"
KEY = os.environ.get("MATRIX_KEY", "")
PORT = int(os.environ.get("MATRIX_PORT", "0"))
ADMIN_PORT = int(os.environ.get("MATRIX_ADMIN_PORT", "0"))
CONNECTION = f"Endpoint=sb://{HOST}/;SharedAccessKeyName={POLICY};SharedAccessKey={KEY}"


def redirect() -> None:
    """Send this process's connections to the namespace's name to the embedded service, and trust its certificate."""
    import certifi

    from tests.conformance.host_resolution import AMQPS, HTTPS, redirect_hosts

    redirect_hosts({(HOST, AMQPS): PORT, (HOST, HTTPS): PORT})
    certifi.where = lambda: os.environ["SSL_CERT_FILE"]


@contextmanager
def step(name: str) -> Iterator[None]:
    """Report whether a step passed; a later one may run all the same."""
    report: dict[str, Any] = {"step": name, "passed": True}
    try:
        yield
    except Exception as error:  # noqa: BLE001 - whatever a client raises is reported
        report.update(passed=False, reason=f"{type(error).__name__}: {error}"[:300])
        if "MATRIX_VERBOSE" in os.environ:
            traceback.print_exc()
    print(json.dumps(report), flush=True)
