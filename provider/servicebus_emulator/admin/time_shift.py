"""The time of a namespace over HTTP: ``GET`` and ``POST`` at ``/$time``, on its administration port.

``GET`` says what time it is. ``POST {"shift_seconds": 60}`` puts the clock forward, if the emulator was started so that
it may be; everything that waits for a time acts on it at once. All namespaces of a process share the clock. Who may do
so: see :mod:`servicebus_emulator.admin.guarding`.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from aiohttp import web

from servicebus_emulator.admin.pages import Page
from servicebus_emulator.clock import LONGEST_SHIFT, ShiftableClock, TimeShiftError

__all__ = ["time_pages"]

_PATH = "/$time"
_MEMBER = "shift_seconds"


def time_pages(clock: ShiftableClock, *, allowed: bool) -> tuple[Page, ...]:
    """Return the pages that show the time to everybody and, where that is allowed, put it forward."""

    async def get(_: web.Request) -> web.Response:
        return _told(clock, allowed=allowed)

    async def post(request: web.Request) -> web.Response:
        if not allowed:
            return _refused("time is not to be shifted here; start the emulator with --allow-time-shift", status=403)
        if request.content_type != "application/json":
            return _refused(f"Content-Type is {request.content_type!r}; allowed: application/json")
        try:
            clock.shift(_shift_of(await request.read()))
        except TimeShiftError as error:
            return _refused(str(error))
        return _told(clock, allowed=allowed)

    return (Page(method="GET", path=_PATH, answer=get, public=True), Page(method="POST", path=_PATH, answer=post))


def _shift_of(body: bytes) -> timedelta:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise TimeShiftError(f"the body is no JSON: {error}; allowed: an object with the number {_MEMBER}") from error
    if not isinstance(document, dict) or set(document) != {_MEMBER}:
        raise TimeShiftError(f"the body is another document; allowed: an object with the number {_MEMBER} and no more")
    seconds = document[_MEMBER]
    # A bool is an int to Python and none to whoever wrote it; not a number compares with nothing.
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TimeShiftError(f"{_MEMBER} is {str(seconds)[:100]!r}; allowed: a number of seconds")
    longest = LONGEST_SHIFT.total_seconds()
    if not 0 < seconds <= longest:
        raise TimeShiftError(f"{_MEMBER} is {seconds:g}; allowed: forward only, above 0 and up to {longest:.0f}")
    return timedelta(seconds=seconds)


def _told(clock: ShiftableClock, *, allowed: bool) -> web.Response:
    now = datetime.fromtimestamp(clock.now() / 1000, tz=UTC)
    shifted = clock.ahead.total_seconds()
    return web.json_response({"now": now.isoformat(), "shifted_seconds": shifted, "shift_allowed": allowed})


def _refused(reason: str, *, status: int = 400) -> web.Response:
    return web.json_response({"error": reason}, status=status)
