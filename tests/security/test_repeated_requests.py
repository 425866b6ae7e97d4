"""A host that repeats a request in its answer, as gateways do, puts its token into no error, traceback or log line."""

from __future__ import annotations

import asyncio
import html
import logging
import re
import traceback
from urllib.parse import unquote

import pytest
from azure.core import exceptions as azure
from azure.servicebus import exceptions as sdk

from servicebus_pair.core import NamespacePair, read_pair_settings
from servicebus_pair.core.errors import ServiceError
from servicebus_pair.core.pair import SIDES
from servicebus_pair.core.sdk.error_mapping import classify
from tests.security.canaries import CANARIES, disclosed

NAMESPACE = "Endpoint=sb://127.0.0.1:{port};SharedAccessKeyName=a;SharedAccessKey=b;UseDevelopmentEmulator=true"


@pytest.mark.parametrize("call", ["backlog_depths", "provision"])
async def test_a_token_that_an_administration_repeats_is_not_shown(caplog: pytest.LogCaptureFixture, call: str):
    caplog.set_level(logging.DEBUG)
    requests: list[str] = []

    async def repeat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append((await reader.readuntil(b"\r\n\r\n")).decode())
        token = re.findall(r"^Authorization: (.*)\r$", requests[-1], re.MULTILINE)[0]
        shown = f"{requests[-1]}{unquote(requests[-1])}{html.escape(requests[-1])}"
        head = f"HTTP/1.1 401 {token}\r\nWWW-Authenticate: {token}\r\nContent-Length: {len(shown)}\r\n\r\n"
        writer.write(f"{head}{shown}".encode())
        writer.close()

    async with await asyncio.start_server(repeat, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        given = {f"{side}_connection_string": NAMESPACE.format(port=number) for number, side in enumerate(SIDES, 1)}
        given |= {f"{side}_namespace": side for side in SIDES} | {"secondary_administration": f"127.0.0.1:{port}"}
        settings = read_pair_settings(given)
        async with NamespacePair(settings.primary, settings.secondary) as pair:
            logging.getLogger("azure").setLevel(logging.DEBUG)
            try:
                with pytest.raises(Exception, match="Manage right") as raised:
                    await getattr(pair, call)()
            finally:
                logging.getLogger("azure").setLevel(logging.WARNING)

    (signature,) = {signature for each in requests for signature in re.findall(r"sig=([^&\s]{20,})", each)}
    text = "".join(traceback.format_exception(raised.value)) + caplog.text
    assert len(text) > 5000
    assert [each for each in (signature, unquote(signature)) if each in text] == []


@pytest.mark.parametrize("canary", [*map(str, CANARIES.values())], ids=CANARIES)
def test_no_error_behind_one_of_the_sdk_shows_a_secret(canary: str):
    wrapped = sdk.ServiceBusError("Handler failed", error=azure.ClientAuthenticationError(f"refused: {canary}"))
    wrapped.__context__ = ValueError(canary, 1)
    wrapped.__context__.__cause__ = wrapped  # a circle

    with pytest.raises(ServiceError) as raised:
        raise classify(wrapped, where="send", authenticated=False) from wrapped

    inner = wrapped.inner_exception
    assert not disclosed("".join(traceback.format_exception(raised.value)) + f"{inner!r} {inner}")
