"""Keys, tokens and secrets appear in no log, response or error."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from aiohttp import ClientSession
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.exceptions import ServiceBusError

from servicebus_emulator.engine.model.access_policy import ROOT_POLICY
from servicebus_emulator.security.sas import sign
from servicebus_emulator.security.settings import KEY_VARIABLE, SECRET_VARIABLE
from tests.emulator.support.authorizers import CANARY, config_with_rules


async def test_no_secret_is_in_logs_responses_or_errors(tmp_path: Path):
    file = tmp_path / "config.json"
    rules = [{"KeyName": "app", "Rights": ["Listen"], "PrimaryKey": f"{CANARY}app", "SecondaryKey": f"{CANARY}app"}]
    file.write_text(config_with_rules(namespace=rules, queue=rules))
    command = [sys.executable, "-m", "servicebus_emulator", "--config", str(file), "--log-level", "DEBUG"]
    command += ["--amqp-port", "0", "--admin-port", "0", "--client", "tool", "--data", str(tmp_path / "data")]
    environment = {**os.environ, KEY_VARIABLE: f"{CANARY}root", SECRET_VARIABLE: f"{CANARY}client"}
    process = await asyncio.create_subprocess_exec(
        *command, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    ready = (await process.stdout.readline()).decode()
    amqp, admin = (part.partition("=")[2].strip() for part in ready.split()[2:4])
    try:
        output_texts = [ready, *await _over_amqp(amqp), *await _over_http(admin)]
    finally:
        process.terminate()
        output, log = await process.communicate()
    output_texts += [output.decode(), log.decode()]
    assert "token refused" in output_texts[-1]
    assert "refused a client" in output_texts[-1]
    assert [text for text in output_texts if "c4n4ry" in text] == []


async def _over_amqp(host: str) -> list[str]:
    output_texts: list[str] = []
    for name, key in (
        (ROOT_POLICY, f"{CANARY}root"),
        ("app", f"{CANARY}app"),
        (ROOT_POLICY, f"{CANARY}wrong"),
        (CANARY, f"{CANARY}root"),
    ):
        credential = AzureNamedKeyCredential(name, key)
        async with ServiceBusClient(host, credential, retry_total=0, use_tls=False) as client:
            try:
                async with client.get_queue_sender("flights") as sender:
                    await sender.send_messages(ServiceBusMessage("x"))
            except ServiceBusError as error:
                output_texts += [str(error), repr(error)]
    assert len(output_texts) == 6
    return output_texts


async def _over_http(host: str) -> list[str]:
    later = int(time.time()) + 60
    good = sign("https://contoso/", rule=ROOT_POLICY, key=f"{CANARY}root", expires=later)
    bad = sign("https://contoso/", rule=CANARY, key=f"{CANARY}wrong", expires=later)
    form = {"grant_type": "client_credentials", "client_id": "tool", "scope": "https://servicebus.azure.net/.default"}
    output_texts: list[str] = []
    async with ClientSession(f"http://{host}") as http:
        for path in ("/health", "/$faults", "/$namespaceinfo?api-version=2021-05"):
            for header in (good, bad, f"Bearer {CANARY}", CANARY):
                async with http.get(path, headers={"Authorization": header}) as response:
                    output_texts += [await response.text(), str(response.headers)]
        for secret in ("client", "wrong"):
            url = "/contoso.example/oauth2/v2.0/token"
            async with http.post(url, data={**form, "client_secret": f"{CANARY}{secret}"}) as response:
                output_texts.append(await response.text())
    return output_texts
