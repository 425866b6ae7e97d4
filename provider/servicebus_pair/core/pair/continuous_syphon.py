"""The syphon that runs in a process while its pair is open, and is started again whatever ends it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from servicebus_pair.core.model.errors import PairClosedError
from servicebus_pair.core.model.events import Event, SyphonFailed
from servicebus_pair.core.model.interfaces import Clock
from servicebus_pair.core.model.logs import get_logger
from servicebus_pair.core.syphon.drain import Syphon
from servicebus_pair.core.syphon.policies.destination_backoff import MAX_BACKOFF, backoff_delay

_log = get_logger(__name__)
# Seconds.
_FIRST_DELAY: Final = 1.0


async def run_continuously(create: Callable[[], Syphon], *, clock: Clock, emit: Callable[[Event], None]) -> None:
    """Run a syphon until this is cancelled; one that ends with an unexpected error is replaced after a pause.

    The pause is a second, doubled with each error that comes within two minutes, and two minutes at most.

    :param emit: receives a ``SyphonFailed`` for each of them.
    """
    failures = 0
    while True:
        started = clock.now()
        try:
            await create().run(wait_for_permissions=True)
        except PairClosedError as error:
            _log.info("the syphon of this pair stopped: %s", error)
            return
        except Exception as error:  # noqa: BLE001 - one that ends for good would be noticed in the next outage
            ended = clock.now()
            failures = 1 if ended - started > MAX_BACKOFF else failures + 1
            delay = backoff_delay(failures, initial_delay=_FIRST_DELAY)
            _log.exception("the syphon of this pair failed unexpectedly failures=%d restart_in=%.0fs", failures, delay)
            emit(SyphonFailed(type(error).__name__, failures, delay, ended))
            await clock.sleep(delay)
        else:
            return
