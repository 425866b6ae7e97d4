"""A spool: batches of messages in files, one after the other for each entity (SPEC section 10).

::

    name                                        an id, and where the first message was written
    messages/ENTITY/TIME-NUMBER-COUNT.spool     one batch each; names sort in the order of writing
    claims/ENTITY                               who is emptying the folder of an entity
    set-aside/ENTITY/NAME, NAME.reason          what cannot be read or delivered, and why
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice
from math import inf
from operator import attrgetter
from typing import Any, Final
from urllib.parse import unquote

from servicebus_pair.core.model.daemon_thread import DaemonThread
from servicebus_pair.core.model.errors import InvalidMessageError, SpoolError, SpoolFullError
from servicebus_pair.core.model.events import Event, SpoolFilling
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.model.options import PairOptions
from servicebus_pair.core.protocol.amqp_message import AmqpMessage
from servicebus_pair.core.spool.identity import obtain_name, read_name
from servicebus_pair.core.spool.location import open_storage
from servicebus_pair.core.spool.spool_file import (
    FileFullError,
    ForeignFileError,
    SpoolFile,
    SpoolKey,
    WrongKeyError,
    decode_file,
    encode_file,
)
from servicebus_pair.core.spool.storage import MAX_FILE_BYTES, StoredFile, StreamedStorage, folder_name

_log = get_logger(__name__)
_MESSAGES: Final = "messages"
SET_ASIDE: Final = "set-aside"
_SUFFIX: Final = ".spool"
_TIME_DIGITS: Final = 20
_NANOSECONDS: Final = 1_000_000_000
# Until the year 2286: names must have one more digit than any time, or a file planted in the future breaks their order.
# A long one could not be set aside, where its reason has a longer name.
_NAME: Final = re.compile(r"(0[0-9]{19})-[^-]{0,40}-([0-9]{1,9})\.spool")
# How long the result of a listing is used to bound the spool; other processes write to it as well.
_LISTING_SECONDS: Final = 5.0
_PIECE_BYTES: Final = 4 << 20
_LISTED_AT_ONCE: Final = 1000
# A slow mount takes longer for a large file than a call may; a mount that hangs holds up a send for as long.
_SLOWEST_BYTES_PER_SECOND: Final = 4 << 20
# Share of the limit from which on the spool is said to fill.
_ALARM_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True, order=True)
class SpooledBatch:
    """A file of the spool; sorts in the order of writing.

    :param written_at: Unix time in seconds.
    """

    name: str
    entity: str
    messages: int
    size_bytes: int
    written_at: float


@dataclass(frozen=True, slots=True)
class SpooledEntity:
    """What the spool holds of one entity.

    :param oldest_at: Unix time in seconds at which its first message was written.
    """

    messages: int
    size_bytes: int
    oldest_at: float


class Spool:
    """Writes batches, and reads and deletes them.

    :param storage: where the files lie.
    :param max_bytes: the spool takes no batch beyond this size.
    :param max_age: the spool takes nothing while a message is older than this, so that no spool is forgotten.
    :param key: encrypts what is written.
    :param ordered: what is written comes behind all that other processes have written, whatever their clocks say.
    :param emit: passes a ``SpoolFilling`` to the observers.
    """

    def __init__(
        self,
        storage: StreamedStorage,
        *,
        clock: Clock,
        max_bytes: int,
        max_age: timedelta = timedelta.max,
        key: SpoolKey | None = None,
        ordered: bool = False,
        emit: Callable[[Event], None] | None = None,
    ) -> None:
        self.storage = storage
        self._clock = clock
        self._max_bytes = max_bytes
        self._max_age = max_age.total_seconds()
        self._key = key
        self._ordered = ordered
        self._emit = emit
        self._alarmed = False
        self._looked = False
        self._thread = DaemonThread("the spool")
        self._last_time = self._used_bytes = 0
        self._oldest_at = inf
        self._listed_at = -inf
        self._name: str | None = None

    def warn_if_unusable(self) -> None:
        """Look once, in the background, whether messages could be written, and log a warning if they cannot."""
        if not self._looked:
            self._looked = True
            self._thread.submit(self._log_problem)

    async def problem(self) -> str | None:
        """Return why no messages could be written, as far as that can be told without writing.

        :raises SpoolError: it does not answer.
        """
        problem: str | None = await self._call("look at", self._problem)
        return problem

    def _problem(self) -> str | None:
        try:
            return self.storage.problem()
        except Exception as error:  # noqa: BLE001 - of a store's library
            return f"{type(error).__name__}: {error}"

    def _log_problem(self) -> None:
        problem = self._problem()
        if problem is not None:
            _log.warning("spool %s: %s; sends will fail while neither namespace answers", self.storage.place, problem)

    async def name(self) -> str:
        """Return what tells this spool from all others; a new one gets it now.

        :raises SpoolError: it cannot be read or written.
        """
        if self._name is None:
            self._name = str(await self._call("name", obtain_name, self.storage))
        return self._name

    async def existing_name(self) -> str | None:
        """Return the name if the spool has one; nothing is written. :raises SpoolError: it cannot be read."""
        name: str | None = await self._call("read the name of", read_name, self.storage)
        return name

    async def write(self, entity: str, messages: Sequence[AmqpMessage]) -> None:
        """Write a batch durably: when this returns, it survives a crash of the process and of the machine.

        :raises InvalidMessageError: a message has a value that AMQP does not have; nothing was written.
        :raises FileFullError: the messages do not fit into one file; nothing was written.
        :raises SpoolFullError: the spool is full, or holds too old messages; nothing was written.
        :raises SpoolError: it cannot be written to; the batch may have been written.
        """
        now = self._clock.now()
        try:
            content = encode_file(entity, messages, created_at=now, key=self._key)
        except TypeError as error:
            raise InvalidMessageError(f"a message to {entity} cannot be spooled: {error}") from error
        if len(content) > MAX_FILE_BYTES:
            raise FileFullError(f"{len(content)} bytes are more than a file of the spool has, {MAX_FILE_BYTES}")
        await self._check_room(len(content), now)
        await self.name()
        if self._ordered:
            folder, more = f"{_MESSAGES}/{folder_name(entity)}", self.storage.listing_seconds
            newest = await self._call("list", self._newest_time, folder, more_seconds=more)
            self._last_time = max(self._last_time, newest)
        name = self._new_name(entity, len(messages), now)
        await self._call("write to", self.storage.create, name, content)
        self._used_bytes += len(content)
        self._oldest_at = min(self._oldest_at, now)
        self._warn_if_filling(now)

    async def batches(self, entity: str | None = None) -> list[SpooledBatch]:
        """Return the batches in the order of writing, of one entity or of all."""
        folder = _MESSAGES if entity is None else f"{_MESSAGES}/{folder_name(entity)}"
        files = await self._list(folder)
        return sorted(batch for each in files if (batch := _parse(each)) is not None)

    async def _list(self, folder: str) -> list[StoredFile]:
        """List piece by piece: an outage leaves more files than one call may list."""
        files, found, more = self.storage.walk(folder), list[StoredFile](), self.storage.listing_seconds
        while True:
            piece = await self._call("list", lambda: list(islice(files, _LISTED_AT_ONCE)), more_seconds=more)
            found += piece
            if len(piece) < _LISTED_AT_ONCE:
                return found

    async def survey(self) -> Mapping[str, SpooledEntity]:
        """Return what the spool holds, by folded entity, the entity with the oldest message first."""
        found: dict[str, SpooledEntity] = {}
        for batch in sorted(await self.batches(), key=lambda each: each.written_at):
            known = found.get(batch.entity, SpooledEntity(0, 0, batch.written_at))
            found[batch.entity] = SpooledEntity(
                known.messages + batch.messages, known.size_bytes + batch.size_bytes, known.oldest_at
            )
        return found

    async def peek(self) -> AsyncIterator[tuple[str, bool, Sequence[AmqpMessage]]]:
        """Yield the entity and the messages of each file, and whether it is set aside; nothing is claimed or removed.

        :raises SpoolError: the spool, or a file of it that is not set aside, cannot be read.
        """
        for folder, is_aside in ((_MESSAGES, False), (SET_ASIDE, True)):
            for file in sorted(await self._list(folder), key=attrgetter("name")):
                if not file.name.endswith(_SUFFIX):
                    continue
                try:
                    content = await self._decode(file.name, file.size_bytes, plain=True)
                except FileNotFoundError:
                    continue  # emptied meanwhile
                except (ForeignFileError, WrongKeyError) as error:
                    if is_aside:
                        continue
                    raise SpoolError(f"cannot read {file.name} of the spool: {error}") from error
                yield content.entity, is_aside, content.messages

    async def read(self, batch: SpooledBatch) -> SpoolFile:
        """Return the messages of a batch, to be delivered.

        :raises FileNotFoundError: another process has emptied it meanwhile.
        :raises ForeignFileError: it was not written by a spool.
        :raises WrongKeyError: it is encrypted with another key, or not encrypted although there is one.
        :raises SpoolError: the spool cannot be read.
        """
        return await self._decode(batch.name, batch.size_bytes)

    async def _decode(self, name: str, size: int, *, plain: bool = False) -> SpoolFile:
        if size > MAX_FILE_BYTES:
            raise ForeignFileError(f"it has {size} bytes, and a file of a spool at most {MAX_FILE_BYTES}")
        if size <= _PIECE_BYTES:
            return decode_file(await self._call("read", self.storage.read, name), key=self._key, plain=plain)
        content = await self._read_pieces(name)
        return await asyncio.to_thread(decode_file, content, key=self._key, plain=plain)

    async def _read_pieces(self, name: str) -> bytes:
        """Read a large file, which on a slow mount takes longer than one call may."""
        pieces, size = [], 0
        file = await self._call("read", self.storage.open, name)
        try:
            while size <= MAX_FILE_BYTES and (piece := await self._call("read", file.read, _PIECE_BYTES)):
                pieces.append(piece)
                size += len(piece)
        finally:
            self._thread.submit(file.close)
        return b"".join(pieces)

    async def keep_only(
        self, batch: SpooledBatch, messages: Sequence[AmqpMessage], *, damage: str | None = None
    ) -> None:
        """Replace a batch by some of its messages, in its place in the order; none deletes it.

        :param damage: the batch is set aside instead of deleted, for this reason.
        """
        if messages and len(messages) == batch.messages:
            return
        if messages:
            stem = batch.name.rpartition("-")[0]
            content = encode_file(batch.entity, messages, created_at=batch.written_at, key=self._key)
            await self._call("write to", self.storage.replace, f"{stem}-{len(messages)}{_SUFFIX}", content)
        if damage is None:
            await self._call("delete from", self.storage.delete, batch.name)
        else:
            await self.set_aside(batch, damage)
        self._listed_at = -inf

    async def set_aside(self, batch: SpooledBatch, reason: str) -> None:
        """Move a batch as it is to where nothing is delivered from, with the reason in a file beside it.

        It is not copied: it may be large, and hardly take any of the disk.
        """
        name = SET_ASIDE + batch.name.removeprefix(_MESSAGES)
        await self._give_reason(name, reason)
        await self._call("write to", self.storage.move, batch.name, name)
        self._listed_at = -inf

    async def set_messages_aside(self, batch: SpooledBatch, messages: Sequence[AmqpMessage], reason: str) -> None:
        """Like :meth:`set_aside`, for some messages of a batch."""
        stem = SET_ASIDE + batch.name.removeprefix(_MESSAGES).removesuffix(_SUFFIX)
        content = encode_file(batch.entity, messages, created_at=batch.written_at, key=self._key)
        name = f"{stem}-{uuid.uuid4().hex}{_SUFFIX}"
        await self._give_reason(name, reason)
        await self._call("write to", self.storage.replace, name, content)

    async def _give_reason(self, name: str, reason: str) -> None:
        _log.error("spool: %s is set aside: %s", name, reason)
        await self._call("write to", self.storage.replace, f"{name}.reason", f"{reason}\n".encode())

    async def _check_room(self, size: int, now: float) -> None:
        # Either way: the clock may go back.
        is_listed = now - _LISTING_SECONDS <= self._listed_at <= now + _LISTING_SECONDS
        if not is_listed or self._used_bytes + size > self._max_bytes:
            batches = await self.batches()
            self._used_bytes = sum(each.size_bytes for each in batches)
            self._oldest_at = min((each.written_at for each in batches), default=inf)
            self._listed_at = now
            # What an earlier process wrote stays before it, even if the clock went back since.
            self._last_time = max([self._last_time, *(_time_of(each.name) for each in batches)])
        if self._used_bytes + size > self._max_bytes:
            raise SpoolFullError(
                f"the spool holds {self._used_bytes} bytes, and {size} more exceed its limit of {self._max_bytes}"
            )
        if self._oldest_at < now - self._max_age:
            raise SpoolFullError(
                f"the spool holds messages from {now - self._oldest_at:.0f} s ago, at most {self._max_age:.0f} s are "
                "allowed: empty it first"
            )

    def _newest_time(self, folder: str) -> int:
        # By names only: this is done before each write, however many files wait.
        names = self.storage.names(folder)
        newest = max(names, default="0")
        if not _is_time(newest):
            newest = max(filter(_is_time, names), default="0")
        return _time_of(newest)

    def _warn_if_filling(self, now: float) -> None:
        filling = self._used_bytes >= _ALARM_SHARE * self._max_bytes
        if filling and not self._alarmed:
            _log.warning("spool: used_bytes=%d limit_bytes=%d: it is filling", self._used_bytes, self._max_bytes)
            if self._emit is not None:
                self._emit(SpoolFilling(self._used_bytes, self._max_bytes, now))
        self._alarmed = filling

    def _new_name(self, entity: str, messages: int, now: float) -> str:
        self._last_time = max(self._last_time + 1, int(now * _NANOSECONDS))
        name = f"{self._last_time:0{_TIME_DIGITS}d}-{uuid.uuid4().hex}-{messages}{_SUFFIX}"
        if _NAME.fullmatch(name) is None:
            raise SpoolError(f"the spool holds a file of {entity} whose name is of the far future: remove it")
        return f"{_MESSAGES}/{folder_name(entity)}/{name}"

    async def _call(self, action: str, method: Any, *args: Any, more_seconds: float = 0.0) -> Any:
        more_seconds += sum(len(each) for each in args if isinstance(each, bytes)) // _SLOWEST_BYTES_PER_SECOND
        try:
            return await self._thread.call(method, *args, more_seconds=more_seconds)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise SpoolError(f"cannot {action} the spool, {type(error).__name__}: {error}") from error


def open_spool(options: PairOptions, *, clock: Clock, emit: Callable[[Event], None] | None = None) -> Spool | None:
    """Return the spool of a pair, if it has one. Nothing is read or written.

    :param emit: passes events to the observers.
    :raises ConfigurationError: its location or its key is wrong.
    """
    if options.spool is None:
        return None
    return Spool(
        open_storage(options.spool),
        clock=clock,
        max_bytes=options.spool_max_bytes,
        max_age=options.spool_max_age,
        key=None if options.spool_secret_key is None else SpoolKey(options.spool_secret_key),
        ordered=options.ordering == "session",
        emit=emit,
    )


def _is_time(name: str) -> bool:
    # Others begin with another digit: see _NAME.
    return name.startswith("0") and name[:_TIME_DIGITS].isdecimal()


def _time_of(name: str) -> int:
    return int(name.rpartition("/")[2][:_TIME_DIGITS])


def _parse(file: StoredFile) -> SpooledBatch | None:
    """Return the batch of a file; ``None`` if its name is none of ours."""
    folder, _, name = file.name.rpartition("/")
    parts = _NAME.fullmatch(name)
    if parts is None:
        return None
    entity = unquote(folder.rpartition("/")[2])
    # What lies elsewhere would be counted, and never be found by its entity.
    if folder != f"{_MESSAGES}/{folder_name(entity)}":
        return None
    time, count = map(int, parts.groups())
    return SpooledBatch(file.name, entity, count, file.size_bytes, time / _NANOSECONDS)
