"""Embedded namespaces with one key per right, and connections that use these keys."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from servicebus_emulator import EmulatorProcess
from tests.airflow.conftest import BACKLOG, KEY

SIDES: Final = {"primary": "contoso", "secondary": "contoso-dr"}
_RULES: Final = {
    "sender": ["Send"],
    "listener": ["Listen"],
    "worker": ["Send", "Listen"],
    # As in Azure, where Manage includes the others.
    "manager": ["Manage", "Send", "Listen"],
}


def keyed_namespaces(folder: Path) -> EmulatorProcess:
    """Return both namespaces, the backlog queues among them, in one process that is not started yet."""
    rules = [
        {"KeyName": name, "Rights": rights, "PrimaryKey": f"{KEY}-{name}", "SecondaryKey": f"{KEY}-{name}-2"}
        for name, rights in _RULES.items()
    ]
    queues = [{"Name": "flights"}, {"Name": "seats", "Properties": {"RequiresSession": True}}]
    namespaces = [
        {"Name": "contoso", "Queues": queues, "AuthorizationRules": rules},
        {"Name": "contoso-dr", "Queues": [{"Name": name} for name in BACKLOG], "AuthorizationRules": rules},
    ]
    config = folder / "keyed.json"
    config.write_text(json.dumps({"UserConfig": {"Namespaces": namespaces}}))
    return EmulatorProcess(list(SIDES.values()), config=config, key=KEY)


def connection_string_of(process: EmulatorProcess, side: str, rule: str) -> dict[str, str]:
    """Return the setting that uses the key of a rule for one namespace."""
    served = process[SIDES[side]]
    at = f"Endpoint=sb://{served.host}:{served.amqp_port}"
    key = f"SharedAccessKeyName={rule};SharedAccessKey={KEY}-{rule}"
    return {f"{side}_connection_string": f"{at};{key};UseDevelopmentEmulator=true;"}
