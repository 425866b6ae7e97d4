"""A sender in its own process, to be killed; prints the id of each message whose send returned."""

from __future__ import annotations

import asyncio
import json
import sys
from itertools import count

from azure.servicebus import ServiceBusMessage

from servicebus_pair.core import Ledger, NamespacePair, read_pair_settings


async def send(settings: dict[str, str], ledger: str) -> None:
    pair = read_pair_settings(settings)
    with Ledger(ledger, run="send") as observer:
        async with (
            NamespacePair(pair.primary, pair.secondary, pair.options, observers=[observer]) as open_pair,
            open_pair.sender("flights") as sender,
        ):
            for number in count():
                for message_id in (await sender.send(ServiceBusMessage("secret", message_id=f"k{number}"))).message_ids:
                    sys.stdout.write(f"{message_id}\n")
                    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(send(json.loads(sys.argv[1]), sys.argv[2]))
