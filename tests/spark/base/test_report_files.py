"""Report files are checked before the work, and replaced atomically."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from servicebus_pair.core.errors import ConfigurationError
from servicebus_pair.spark.base.report_files import check_writable, write_json


def test_file_is_replaced_in_a_new_folder(tmp_path: Path):
    file = tmp_path / "new" / "manifest.json"
    check_writable(file, what="manifest")
    assert not file.parent.exists()
    for value in ({"a": 1}, {"b": 2}):
        write_json(file, value)
        assert json.loads(file.read_text()) == value
    assert list(file.parent.iterdir()) == [file]


def test_unwritable_path_is_rejected(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="which is a folder: allowed is the path of a file"):
        check_writable(tmp_path, what="manifest")
    with pytest.raises(ConfigurationError, match="no file can be created in /dev/null"):
        check_writable("/dev/null/m.json", what="manifest")
