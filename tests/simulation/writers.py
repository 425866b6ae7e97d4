"""The application of a history: writers that send the messages of their sessions, and account for each of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import AsyncExitStack, suppress
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, Final

from azure.servicebus import ServiceBusMessage

from servicebus_pair.core.model.errors import PairClosedError, PairError, SendError, find_send_error
from servicebus_pair.core.send.sender import PairSender
from tests.simulation.nodes import Node
from tests.simulation.record import ENTITIES, HOUR, MINUTE
from tests.simulation.service import POISON

if TYPE_CHECKING:
    from tests.simulation.history import History

_LONGEST_SEND: Final = HOUR


class Writers:
    """One writer for each session of each entity.

    :param end: when they stop to write new messages, in simulated seconds.
    :param poison: the share of messages that the service rejects whatever the entity.
    :ivar writing: how many writers have messages to send, or will have some.
    """

    def __init__(self, history: History, *, end: float, poison: float) -> None:
        self.writing = 0
        self._history = history
        self._record, self._verdict, self._loop = history.record, history.verdict, history.loop
        self._end = end
        self._poisonous = poison
        self._names: dict[str, int] = {}

    def all(self) -> list[Coroutine[Any, Any, None]]:
        """Return what each writer does."""
        each_session = [(entity, session) for entity, (_, sessions) in ENTITIES.items() for session in sessions]
        self.writing = len(each_session)
        return [self._write(entity, session) for entity, session in each_session]

    async def _write(self, entity: str, session: str | None) -> None:
        """Send messages of one session, one send after another, from whichever process is there."""
        random = Random(f"writer {self._record.outcome.seed} {entity} {session}")  # noqa: S311
        writer = f"{entity}.{session}"
        try:
            while self._loop.time() < self._end:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._end - self._loop.time()):
                        await self._pause(random)
                waiting = [self._new_message(writer, session, random) for _ in range(_batch_size(random))]
                longest = 2.0
                while waiting := await self._send(entity, waiting, random):
                    await asyncio.sleep(random.uniform(0.01, longest))
                    longest = min(2 * longest, 10 * MINUTE)
        finally:
            self.writing -= 1

    async def _pause(self, random: Random) -> None:
        """Wait between two sends: briefly, or for long unless the primary breaks."""
        choice = random.random()
        if choice < 0.4:
            await asyncio.sleep(random.uniform(0.05, 10))
        elif choice < 0.7:
            await asyncio.sleep(random.expovariate(1 / (30 * MINUTE)))
        else:
            await asyncio.wait({self._history.troubles.next}, timeout=random.expovariate(1 / HOUR))
            await asyncio.sleep(random.uniform(0, 20))

    def _new_message(self, writer: str, session: str | None, random: Random) -> ServiceBusMessage:
        number = self._names[writer] = self._names.get(writer, 0) + 1
        name = f"{writer}.{number}"
        self._record.outcome.messages += 1
        properties: dict[str | bytes, Any] = {"name": name}
        life = timedelta(days=1)
        if random.random() < self._poisonous:
            self._verdict.poison.add(name)
            self._record.outcome.poison += 1
            match random.randrange(3):
                case 0:
                    properties[POISON.decode()] = "x"
                case 1:
                    properties["large"] = "x" * 33_000
                case _:
                    life = timedelta()
        size = 20_000 if random.random() < 0.02 else 10
        return ServiceBusMessage(
            b"x" * size, message_id=name, session_id=session, time_to_live=life, application_properties=properties
        )

    async def _send(self, entity: str, messages: list[ServiceBusMessage], random: Random) -> list[ServiceBusMessage]:
        """Send from one process; return what must be sent again."""
        if not self._history.nodes:
            await asyncio.sleep(1)
            return messages
        node = self._history.nodes[random.choice(sorted(self._history.nodes))]
        timeout = random.choice([20.0, 120.0, None])
        names = [str(each.message_id) for each in messages]
        at = None
        if not self._record.outcome.ordered and random.random() < 0.03:
            at = datetime.fromtimestamp(self._loop.wall_clock() + random.uniform(0, HOUR), UTC)
        self._record.note(node.name, "send", entity, names[0], len(names), timeout)
        self._record.outcome.sends += 1
        linger = random.choice([0.0, 0.0, 20.0, 100.0])
        started = self._loop.time()
        task = node.process.start(self._send_once(node, entity, messages, timeout=timeout, at=at, linger=linger))
        if random.random() < 0.02:
            self._loop.call_later(random.uniform(0, 5), task.cancel, context=self._loop.world)
        await asyncio.wait({task, node.died}, timeout=_LONGEST_SEND, return_when=asyncio.FIRST_COMPLETED)
        if not task.done() and not node.died.done():
            self._record.violate(f"a send of {names[0]} with timeout {timeout} did not end within {_LONGEST_SEND:g} s")
            await asyncio.wait({task, node.died}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            left = [each for each in messages if each.message_id not in self._verdict.accepted]
        else:
            left = task.result()
            self._record.note(node.name, "sent", entity, names[0], len(left), round(self._loop.time() - started, 6))
        return [each for each in left if each.message_id not in self._verdict.poison or not task.done()]

    async def _send_once(
        self,
        node: Node,
        entity: str,
        messages: list[ServiceBusMessage],
        *,
        timeout: float | None,
        at: datetime | None,
        linger: float,
    ) -> list[ServiceBusMessage]:
        """Send and return the unsent messages; accepted and unsent together must be all messages."""
        async with AsyncExitStack() as stack:
            try:
                sender = await stack.enter_async_context(node.sender(entity, linger=linger))
            except PairError:
                return messages  # nothing was taken
            return await self._account_of(node, sender, messages, timeout=timeout, at=at)

    async def _account_of(
        self,
        node: Node,
        sender: PairSender,
        messages: list[ServiceBusMessage],
        *,
        timeout: float | None,
        at: datetime | None,
    ) -> list[ServiceBusMessage]:
        account: SendError | None
        given = [str(each.message_id) for each in messages]
        try:
            if at is None:
                result = await sender.send(messages, timeout=timeout)
            else:
                result = (await sender.schedule(messages, at, timeout=timeout)).sent
        except asyncio.CancelledError as error:
            account = find_send_error(error)
            if account is None:
                return messages
        except SendError as error:
            account = error
        except PairClosedError:
            return messages  # nothing was taken
        except PairError as error:
            self._record.violate(f"a send ended without an account: {type(error).__name__}: {error}")
            return messages
        else:
            self._verdict.account(given, result.message_ids, [])
            return []
        self._record.note(node.name, type(account).__name__, type(account.cause).__name__)
        unsent = [_id_of(each) for each in account.unsent]
        self._verdict.account(given, account.result.message_ids, unsent)
        # A verdict of the service, however the send ended: what follows these messages may have been delivered.
        refused = {_id_of(each) for each in account.refused}
        return [each for each in messages if each.message_id in unsent and each.message_id not in refused]


def _batch_size(random: Random) -> int:
    return random.choice([1, 1, 2, 3]) if random.random() < 0.97 else 40


def _id_of(message: Any) -> str:
    properties = getattr(message, "properties", None)
    return str(message.message_id if properties is None else properties.message_id)
