"""Replays recorded conversations with the real Azure Resource Manager against the embedded one.

They are in source distributions of azure-mgmt-servicebus, as its test recordings. A *fact* is the status of an answer,
or one value in its body by its path; of values that no two services share, such as times and keys, that they are there.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml

from servicebus_emulator import Emulator
from servicebus_emulator.arm.addresses import Scope
from tests.conformance.sdk_source import CACHE

_VERSIONS: Final = ("8.0.0", "7.0.0", "2.0.0")
_OWN: Final = re.compile(
    r"(?i)\.(createdat|updatedat|accessedat|\w*key|\w*connectionstring|metricid|servicebusendpoint)$"
)
_SCOPE: Final = re.compile(r"(?i)/subscriptions/([^/]+)/resourceGroups/([^/]+)/")
_PROVIDER: Final = "/providers/microsoft.servicebus/"
# Names of operations are the service's own, and lists of a subscription have other people's namespaces.
_FOREIGN: Final = re.compile(r"(?i)operationresults|/microsoft.servicebus/namespaces/?\?")
_ABSENT: Final = "absent"


@dataclass(slots=True)
class Replay:
    """What became of the facts of all recordings.

    :ivar differences: how often a fact differed, by path, recorded value and ours.
    """

    same: int = 0
    facts: int = 0
    requests: int = 0
    missing: list[str] = field(default_factory=list)
    differences: Counter[str] = field(default_factory=Counter)

    def compare(self, what: str, *, recorded: Mapping[str, Any], answered: Mapping[str, Any]) -> None:
        """Count the facts of one answer."""
        self.requests += 1
        for path, value in recorded.items():
            ours = answered.get(path, _ABSENT)
            is_same = ours != _ABSENT if _OWN.search(path) else _folded(ours) == _folded(value)
            self.facts += 1
            self.same += is_same
            if not is_same:
                self.differences[f"{what}{path}: {value!r}, here {ours!r}"] += 1

    def __str__(self) -> str:
        lines = [f"{number:4} {text[:180]}" for text, number in self.differences.most_common()]
        lines += [f"version {each} is not to be had" for each in self.missing]
        return "\n".join([*lines, f"recordings: {self.requests} requests, {self.same} of {self.facts} facts the same"])


async def replay_recordings() -> Replay:
    """Download the recordings that are to be had, and replay each against a fresh emulator."""
    replay = Replay()
    for version in _VERSIONS:
        folder = _fetch(version)
        if folder is None:
            replay.missing.append(version)
            continue
        for file in sorted(folder.glob("**/recordings/*")):
            await _replay(list(_interactions(file)), into=replay)
    return replay


async def _replay(interactions: list[tuple[str, str, Any, int, Any]], *, into: Replay) -> None:
    scopes = [found for _, url, *_ in interactions if (found := _SCOPE.search(url)) is not None]
    if len(scopes) == 0:
        return
    scope = Scope(subscription=scopes[0][1], resource_group=scopes[0][2])
    # With one namespace that no recording knows: an emulator has at least one.
    async with (
        Emulator(["of-the-replay"], open=True, arm_scope=scope) as emulator,
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as http,
    ):
        for method, url, body, status, answer in interactions:
            path = url.partition("://")[2].partition("/")[2]
            if _PROVIDER not in f"/{path.casefold()}" or _FOREIGN.search(path) is not None:
                continue
            async with http.request(method, f"{emulator.arm_url}/{path}", json=body) as response:
                ours: Any = None
                with suppress(ValueError, aiohttp.ContentTypeError):
                    ours = await response.json(content_type=None)
            kinds = "/".join(path.partition("?")[0].split("/")[6::2])
            recorded = {".status": status, **dict(_facts(answer))}
            into.compare(
                f"{method} {kinds}", recorded=recorded, answered={".status": response.status, **dict(_facts(ours))}
            )


def _facts(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, each in value.items():
            yield from _facts(each, f"{path}.{name}")
    elif isinstance(value, list):
        for position, each in enumerate(value):
            # By name: the order of a list does not count.
            name = each.get("name", position) if isinstance(each, dict) else position
            yield from _facts(each, f"{path}.{name}")
    elif value is not None and path != "":
        yield path, value


def _folded(value: object) -> object:
    # The service itself spells names and types in several ways.
    return value.casefold() if isinstance(value, str) else value


def _interactions(file: Path) -> Iterator[tuple[str, str, Any, int, Any]]:
    """Yield method, URL, body, status and answer of each request of a recording."""
    if file.suffix == ".json":
        for entry in json.loads(file.read_text("utf-8"))["Entries"]:
            body, answer = _decoded(entry["RequestBody"]), _decoded(entry["ResponseBody"])
            yield entry["RequestMethod"], entry["RequestUri"], body, entry["StatusCode"], answer
    elif file.suffix == ".yaml":
        for each in yaml.safe_load(file.read_text("utf-8").replace("!!python/unicode ", ""))["interactions"]:
            request, response = each["request"], each["response"]
            answer = _decoded(response["body"]["string"])
            yield request["method"], request["uri"], _decoded(request["body"]), response["status"]["code"], answer


def _decoded(body: Any) -> Any:
    if not isinstance(body, str | bytes):
        return body
    with suppress(ValueError):
        return json.loads(body)
    return None


def _fetch(version: str) -> Path | None:
    """Return the folder of the unpacked source distribution, or None when pip cannot have it."""
    folder = CACHE / f"azure-mgmt-servicebus-{version}"
    if folder.is_dir():
        return folder
    CACHE.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", ":all:", "--dest", str(CACHE), f"azure-mgmt-servicebus=={version}"]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        return None
    unpacked = CACHE / "unpacked-recordings"
    with zipfile.ZipFile(CACHE / f"{folder.name}.zip") as archive:
        archive.extractall(unpacked)
    shutil.move(unpacked / folder.name, folder)
    unpacked.rmdir()
    return folder
