"""Runs a program in a Python process of its own."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.airflow.conftest import PROJECT


def run_python(program: str, *arguments: str, **environment: str) -> str:
    """Run a program, which must succeed, and return what it printed."""
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **environment},
        cwd=PROJECT,
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout
