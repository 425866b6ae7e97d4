"""Places of a ledger: a folder, and stores that fsspec knows. S3 where its library and a server of it are installed."""

from __future__ import annotations

import uuid
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

_S3 = all(find_spec(name) is not None for name in ("moto", "s3fs"))
STORES = [
    "folder",
    "file",
    "memory",
    pytest.param("s3", marks=pytest.mark.skipif(not _S3, reason="make compatibility ONLY=spark has S3")),
]


def new_ledger(store: str, home: Path) -> str:
    """Return the location of a ledger that nothing else uses."""
    match store:
        case "folder":
            return str(home)
        case "file":
            return home.as_uri()
        case "memory":
            return f"memory://{uuid.uuid4().hex}"
    return f"s3a://{_bucket()}/{uuid.uuid4().hex}"


@cache
def _bucket() -> str:
    """Serve S3 until this process ends, and let fsspec find it."""
    import fsspec

    server: Any = import_module("moto.server").ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    fsspec.config.conf["s3a"] = {"endpoint_url": f"http://{host}:{port}", "key": "any", "secret": "any"}
    fsspec.filesystem("s3a").mkdir("ledgers")
    return "ledgers"
