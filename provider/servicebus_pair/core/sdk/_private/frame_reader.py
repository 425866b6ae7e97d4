"""Reads the frames of a connection of azure-servicebus (7.15) in chunks.

The SDK reads each frame with two reads of the socket, and decodes it at once. Here one read takes what has arrived;
what a raw link deals with itself is given to it as bytes, and every other frame goes to the SDK as before: it opens,
secures and authorizes the connection, attaches and detaches links, and answers requests.

Used only where ``capabilities.fast_path()`` is true; so private names are imported on use.
"""

# ruff: noqa: SLF001 - private members are what this module is about

from __future__ import annotations

import asyncio
from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812 - it is one
from typing import Any, Final

from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.sdk._private.frame_checks import check_frame_size, checked
from servicebus_pair.core.sdk._private.turns import share_of

_log = get_logger(__name__)
# The SDK's state of a link that is attached.
_ATTACHED: Final = 3
_CHUNK_BYTES: Final = 2**18
_FRAME_HEADER_BYTES: Final = 8
_read_size: Final = Struct(">I").unpack_from
_read_channel: Final = Struct(">H").unpack_from


class FrameReader:
    """Takes over reading from an open connection; whatever listens to that reads through this from now on.

    Several tasks may wait for frames: one reads, and the others go on once it has.

    :param connection: the SDK's.
    :param take_frame: given the buffer, where the performative begins and where the frame ends; returns whether it
        dealt with the frame.
    """

    def __init__(self, connection: Any, take_frame: Callable[[bytes, int, int], bool]) -> None:
        self._connection = connection
        self._take_frame = take_frame
        self._lock = asyncio.Lock()
        self._share = share_of(connection)
        # Another object after each read.
        self._last_read = object()
        # Bytes that the SDK had read and not used.
        self._buffer = bytes(connection._transport._read_buffer.read())
        self._position = 0
        connection._read_frame = self._read

    async def listen(self, seconds: float) -> bool:
        """Wait for frames and have them dealt with; return False if none came in time.

        :raises AMQPConnectionError: the connection is broken.
        """
        before = self._last_read
        await self._connection.listen(wait=seconds)
        if self._connection._error is not None:
            raise self._connection._error
        return self._last_read is not before

    async def _read(self, wait: Any = True, **_: Any) -> bool:  # noqa: FBT002 - the SDK's parameter
        """Stand in for the SDK's ``_read_frame``; return True, so that the SDK looks at what has changed."""
        timeout: float | None
        match wait:
            case True:
                timeout = None
            case False:
                timeout = self._connection._socket_timeout
            case _:
                timeout = wait
        before = self._last_read
        async with self._lock:
            if self._last_read is before and (await self._process() or await self._take_chunk(timeout)):
                self._last_read = object()
        return True

    async def _take_chunk(self, timeout: float | None) -> bool:
        """Deal with what has arrived; return False if nothing did in time."""
        chunk = await self._receive(timeout)
        self._buffer, self._position = self._buffer[self._position :] + chunk, 0
        await self._process()
        return bool(chunk)

    async def _receive(self, timeout: float | None) -> bytes:
        """Return what has arrived; nothing if that takes too long. :raises OSError: the connection is gone."""
        transport = self._connection._transport
        try:
            async with asyncio.timeout(timeout):
                if not hasattr(transport, "reader"):
                    return bytes(await transport.sock.receive_bytes())  # a WebSocket's message
                chunk: bytes = await transport.reader.read(_CHUNK_BYTES)
        except TimeoutError as error:
            if error.errno is not None:
                raise ConnectionAbortedError("the service does not acknowledge any more") from error
            return b""
        except (AttributeError, TypeError) as error:
            raise ConnectionResetError("the connection has been closed") from error
        if not chunk:
            raise ConnectionResetError("the service has closed the connection")
        return chunk

    async def _process(self) -> bool:
        """Deal with all complete frames of the buffer; return whether there was one."""
        data, length = self._buffer, len(self._buffer)
        take_frame, share, any_processed = self._take_frame, self._share, False
        while length - self._position >= _FRAME_HEADER_BYTES:
            start = self._position
            (size,) = _read_size(data, start)
            check_frame_size(size)
            end = start + size
            if end > length:
                break
            await share.turn()
            # Before it is dealt with: it would be again, if that is cancelled.
            self._position, any_processed = end, True
            performative = start + 4 * data[start + 4]
            if performative < end and not take_frame(data, performative, end):
                await self._give_to_sdk(data, start, performative, end)
        share.end()
        return any_processed

    async def _give_to_sdk(self, data: bytes, start: int, performative: int, end: int) -> None:
        from azure.servicebus._pyamqp._decode import decode_frame

        (channel,) = _read_channel(data, start + 6)
        frame = checked(decode_frame)(memoryview(data)[performative:end])
        await self._connection._process_incoming_frame(channel, frame)


def now() -> float:
    """Return the time of the event loop in seconds."""
    return asyncio.get_running_loop().time()


def check_attached(handler: Any) -> None:
    """:raises Exception: why the connection or the link of ``handler`` is gone."""
    if (broken := handler._connection._error) is not None:
        raise broken
    state = handler._link.get_state()
    if state.value != _ATTACHED:
        raise ConnectionAbortedError(f"the link is {state.name}")


def stop_keep_alive(handler: Any) -> None:
    """Cancel the SDK's task that reads from a connection now and then; a raw link renews the token itself."""
    task, handler._keep_alive_thread = handler._keep_alive_thread, None
    if task is not None:
        task.cancel()


def mapped_error(owner: Any, failure: Exception) -> Exception:
    """Return the public error of the SDK for a private one, as its senders and receivers do.

    :param owner: the sender or receiver.
    """
    from azure.servicebus._pyamqp.error import AMQPException

    if not isinstance(failure, AMQPException | ValueError | TypeError | LookupError | StructError):
        return failure
    mapped: Exception = owner._amqp_transport.create_servicebus_exception(
        _log, failure, custom_endpoint_address=owner._config.custom_endpoint_address
    )
    return mapped
