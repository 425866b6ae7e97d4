"""What the HTTP server logs: its own troubles with a traceback, its clients' in a line."""

from __future__ import annotations

import logging
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

__all__ = ["http_log"]

http_log: Final = logging.getLogger(__name__)
"""For aiohttp, which logs what clients do wrong as errors of its own."""

_CLIENTS_FAULT: Final = (HttpProcessingError, ConnectionError, web.HTTPException)


class _Shortened(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        error = None if record.exc_info is None else record.exc_info[1]
        if not isinstance(error, _CLIENTS_FAULT):
            return True
        http_log.info("a request could not be served: %s", type(error).__name__)
        return False


http_log.addFilter(_Shortened())
