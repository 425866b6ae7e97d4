"""A spool has a name that tells it from that of another machine (SPEC sections 9 and 10)."""

from __future__ import annotations

import re
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from servicebus_pair.core.spool.folder_storage import FolderStorage
from servicebus_pair.core.spool.identity import NAME_FILE, obtain_name, read_name
from servicebus_pair.core.spool.location import open_storage


def test_the_name_says_where_the_spool_was_begun_and_stays(tmp_path: Path) -> None:
    here = FolderStorage(f"{tmp_path}/here")
    assert read_name(here) is None
    assert not (tmp_path / "here").exists()
    name = obtain_name(here)
    assert re.fullmatch(
        rf"[0-9a-f]{{12}} on {re.escape(socket.gethostname())} in {re.escape(str(tmp_path))}/here", name
    )
    # As another machine sees the same mount at another path.
    (tmp_path / "mounted").symlink_to(tmp_path / "here")
    mounted = FolderStorage(f"{tmp_path}/mounted")
    assert (read_name(mounted), obtain_name(mounted)) == (name, name)
    assert obtain_name(FolderStorage(f"{tmp_path}/other")) != name


def test_the_name_of_an_object_store_is_its_url(tmp_path: Path) -> None:
    url = f"memory://{tmp_path.name}/spool"
    assert obtain_name(open_storage(url)).endswith(f" in {url}")


def test_processes_that_begin_a_spool_at_once_agree_on_its_name(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as together:
        names = set(together.map(lambda _: obtain_name(FolderStorage(str(tmp_path))), range(32)))
    assert len(names) == 1


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b"", None),
        (b"\xff\x00 on\na\x1b[31m", "\ufffd on a[31m"),
        (b"x" * 5000, "x" * 1000),
    ],
    ids=["empty", "control characters", "long"],
)
def test_a_name_that_is_none_of_ours_forges_no_line(tmp_path: Path, content: bytes, name: str | None) -> None:
    (tmp_path / NAME_FILE).write_bytes(content)
    storage = FolderStorage(str(tmp_path))
    assert read_name(storage) == name
    assert obtain_name(storage) == (name or f"without a name {storage.place}")
