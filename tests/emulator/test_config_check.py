"""``servicebus-emulator check``: the line and the reason, before anything is served."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from servicebus_emulator.__main__ import main
from servicebus_emulator.config_check import line_of

DOCUMENT = """\
{
  "UserConfig": {
    "Namespaces": [
      {"Name": "contoso", "Queues": [
        {"Name": "a, [b]: {c}"},
        {
          "Name": "flights",
          "Properties": {"LockDuration":
            "PT6M"}
        }], "Topics": []
      },
      {"Name": "contoso-dr"}
    ]
  }
}
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("", 1),
        ("UserConfig", 2),
        ("UserConfig.Namespaces[0].Name", 4),
        ("UserConfig.Namespaces[0].Queues[0].Name", 5),
        ("UserConfig.Namespaces[0].Queues[1]", 6),
        ("UserConfig.Namespaces[0].Queues[1].Properties.LockDuration", 8),
        ("UserConfig.Namespaces[0].Queues[1].Properties.Missing", 8),
        ("UserConfig.Namespaces[0].Topics", 10),
        ("UserConfig.Namespaces[1].Queues[0].Name", 12),
        ("line 7, column 3", 7),
        ("the document", 1),
    ],
)
def test_the_line_of_a_value_or_of_what_lacks_it(path: str, line: int):
    assert line_of(DOCUMENT, path) == line


def test_an_invalid_file_is_reported_with_line_and_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bad, good, broken = tmp_path / "bad.json", tmp_path / "good.json", tmp_path / "broken.json"
    bad.write_text(DOCUMENT)
    good.write_text(DOCUMENT.replace("PT6M", "PT5M"))
    broken.write_text('{\n"UserConfig": }')
    assert main(["check", str(bad), str(good), str(broken), str(tmp_path / "none.json")]) == 1
    out, err = capsys.readouterr()
    assert out == (
        f"{good}: valid: namespace contoso with 2 queues, 0 topics, 0 subscriptions; "
        "namespace contoso-dr with 0 queues, 0 topics, 0 subscriptions\n"
    )
    first, second, third = err.splitlines()
    assert first.startswith(f"{bad}:8: UserConfig.Namespaces[0].Queues[1].Properties.LockDuration is 'PT6M'; allowed: ")
    assert second.startswith(f"{broken}:2: line 2, column 15 is ")
    assert third == f"{tmp_path / 'none.json'}: cannot be read: No such file or directory"
    assert main(["check", str(good)]) == 0


MISTAKES = """\
{"UserConfig": {"Namespaces": [
 {"Name": "my namespace",
  "DeliverPing": true,
  "Tier": "Gold",
  "AuthorizationRules": [
   {"KeyName": "r", "Rights": ["Write"]},
   {"KeyName": "s", "Rights": ["Send"], "PrimaryKey": 5}],
  "Queues": [
   {"Name": "a"},
   {"Name": "A"},
   {"Name": "/b//c"},
   {"Properties": {}},
   {"Name": 5},
   {"Name": "d", "Properties": {
     "LockDuration": "PT6M",
     "DefaultMessageTimeToLive": "1h",
     "MaxDeliveryCount": 0,
     "RequiresSession": "true",
     "RequireSession": true,
     "ForwardTo": "nowhere",
     "DuplicateDetectionHistoryTimeWindow": "PT19S"}}],
  "Topics": [
   {"Name": "t", "Subscriptions": [
     {"Name": "s", "Rules": [
       {"Name": "r", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "x >> 1"}}},
       {"Name": "q", "Properties": {"FilterType": "Regex"}},
       {"Name": "p", "Properties": {"FilterType": "Correlation"}}]}]}]},
 {"Name": "contoso"},
 {"Name": "CONTOSO"}]}}
"""


def test_all_mistakes_of_a_file_are_reported_at_once_each_in_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    file = tmp_path / "config.json"
    file.write_text(MISTAKES, encoding="utf-8-sig")
    assert main(["check", str(file)]) == 1
    out, err = capsys.readouterr()
    lines = [int(each.removeprefix(f"{file}:").partition(":")[0]) for each in err.splitlines()]
    assert lines == [2, 3, 4, 6, 7, 10, 11, 12, 13, *range(15, 22), 25, 26, 27, 29]
    assert all("; allowed: " in each for each in err.splitlines())
    assert out == ""


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: not a regular file"),
        (Path("/dev/zero"), "cannot be read: not a regular file"),
        ("[" * 100_000, "the document is 'nested too deeply'"),
        ("[" * 900 + "]" * 900, "the document is 'nested too deeply'"),
        ("[" + "9" * 5000 + "]", "a number is 'Exceeds the limit"),
        ('{"\\ud800\\u001b[31m": 1}', r"\ud800\x1b[31m is 1; allowed: only UserConfig, $schema"),
        (json.dumps({"x" * 300: 1}), "allowed: a name of up to 256 characters"),
        ('{"x": "Endpoint=sb://a/;SharedAccessKey=c4n4ry="}', "'Endpoint=sb://a/;SharedAccessKey=***'; allowed: only"),
    ],
    ids=["pipe", "device", "too deep to read", "deep", "digits", "terminal", "long", "secret"],
)
def test_a_hostile_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str | Path | None, reason: str
):
    file = tmp_path / "config.json"
    if isinstance(content, Path):
        file.symlink_to(content)
    elif content is None:
        os.mkfifo(file)
    else:
        file.write_text(content)
    assert main(["check", str(file)]) == 1
    assert reason in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--config", str(file)])


def test_a_file_with_many_mistakes_is_not_read_again_for_each(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    queues = [{"Name": f"q{number}", "Properties": {"LockDuration": "PT9H"}} for number in range(500)]
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "contoso", "Queues": queues}]}}))
    assert main(["check", str(file)]) == 1
    *_, last = lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 101
    assert last == f"{file}: there may be more: correct these first"


def test_check_needs_a_file(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["check"])
    assert ended.value.code == 2
    assert "FILE" in capsys.readouterr().err


def test_serving_an_invalid_file_tells_the_line_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    bad = tmp_path / "bad.json"
    bad.write_text(DOCUMENT)
    with pytest.raises(SystemExit) as ended:
        main(["--config", str(bad)])
    assert ended.value.code == 2
    assert f"--config {bad}:8: UserConfig." in capsys.readouterr().err


def test_every_value_of_a_document_has_a_line():
    text = json.dumps(json.loads(DOCUMENT), indent=1)
    lines = text.splitlines()
    for name in ("contoso", "flights", "contoso-dr"):
        [line] = [number for number, each in enumerate(lines, start=1) if f'"{name}"' in each]
        place = {"contoso": "[0]", "flights": "[0].Queues[1]", "contoso-dr": "[1]"}[name]
        assert line_of(text, f"UserConfig.Namespaces{place}.Name") == line
