"""The clock over HTTP: ``GET`` and ``POST`` at ``/$time``, on the administration port of a namespace.

``GET`` returns the time. ``POST {"shift_seconds": 60}`` moves the clock forward, if the emulator was started with
``--allow-time-shift``; all timers react at once. All namespaces of a process share the clock.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

from aiohttp import web

from servicebus_emulator.admin.access_control import Route
from servicebus_emulator.admin.http_requests import MAX_FORM_BYTES, read_body
from servicebus_emulator.clock import MAX_SHIFT, ShiftableClock, TimeShiftError

_PATH = "/$time"
_MEMBER = "shift_seconds"


def time_routes(clock: ShiftableClock, *, allowed: bool) -> tuple[Route, ...]:
    """Return the public route that reads the clock and the restricted one that shifts it.

    :param allowed: whether the clock may be shifted.
    """

    async def get(_: web.Request) -> web.Response:
        return _time_response(clock, allowed=allowed)

    async def post(request: web.Request) -> web.Response:
        if not allowed:
            return _error_response("time shifts are disabled; start the emulator with --allow-time-shift", status=403)
        if request.content_type != "application/json":
            return _error_response(f"Content-Type is {request.content_type!r}; allowed: application/json")
        try:
            clock.shift(_parse_shift(await read_body(request, limit=MAX_FORM_BYTES)))
        except TimeShiftError as error:
            return _error_response(str(error))
        return _time_response(clock, allowed=allowed)

    return (Route(method="GET", path=_PATH, handler=get, public=True), Route(method="POST", path=_PATH, handler=post))


def _parse_shift(body: bytes) -> timedelta:
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise TimeShiftError(f"the body is not JSON: {error}; allowed: an object with the number {_MEMBER}") from error
    if not isinstance(document, dict) or set(document) != {_MEMBER}:
        raise TimeShiftError(f"the body has other content; allowed: an object with the number {_MEMBER} only")
    seconds = document[_MEMBER]
    # A bool is an int in Python; NaN fails the comparison below.
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TimeShiftError(f"{_MEMBER} is {str(seconds)[:100]!r}; allowed: a number of seconds")
    longest = MAX_SHIFT.total_seconds()
    if not 0 < seconds <= longest:
        raise TimeShiftError(f"{_MEMBER} is {seconds:g}; allowed: forward only, above 0 and up to {longest:.0f}")
    return timedelta(seconds=seconds)


def _time_response(clock: ShiftableClock, *, allowed: bool) -> web.Response:
    now = datetime.fromtimestamp(clock.now() / 1000, tz=UTC)
    shifted = clock.ahead.total_seconds()
    return web.json_response({"now": now.isoformat(), "shifted_seconds": shifted, "shift_allowed": allowed})


def _error_response(reason: str, *, status: int = 400) -> web.Response:
    return web.json_response({"error": reason}, status=status)
