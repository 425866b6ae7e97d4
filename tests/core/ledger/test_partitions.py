"""A run's files lie where its name says, and runs never share a folder."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from servicebus_pair.core.ledger.partitions import days_since, partition_path, run_partition

AT = datetime(2026, 11, 22, 23, 59, tzinfo=UTC).timestamp()
ODD = (
    "",
    "a/b",
    "a\\b",
    "../up",
    "*",
    "{a,b}",
    "manual__2026-11-22T00:00:00+00:00",
    "a" * 300,
    "a" * 301,
    "é",
    "\ud800",
)


def test_files_of_a_run_are_below_its_day_and_name() -> None:
    assert partition_path("monday", at=AT) == "day=2026-11-22/run=monday"
    assert list(days_since(AT, now=AT + 120)) == [f"day=2026-11-{day}" for day in (21, 22, 23, 24)]


def test_runs_with_odd_names_have_folders_of_their_own() -> None:
    folders = {run_partition(run) for run in (*ODD, "a_b", "_up")}
    assert len(folders) == len(ODD) + 2
    assert all(folder.removeprefix("run=").replace(".", "").replace("-", "").isascii() for folder in folders)


@pytest.mark.parametrize("run", ODD)
def test_folder_names_are_safe(run: str) -> None:
    name = run_partition(run)
    assert not set(name) & set('/\\*?[]{},:%" ')


def test_folder_names_are_short() -> None:
    assert run_partition("a" * 80) == f"run={'a' * 80}"
    name, _, digest = run_partition("a" * 81).partition(".")
    assert (name, len(digest)) == (f"run={'a' * 80}", 12)
