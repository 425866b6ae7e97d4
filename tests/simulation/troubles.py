"""What breaks, dies and is done by hand in a history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from servicebus_emulator.engine.model.errors import EntityExists
from servicebus_pair.core import NamespacePair
from servicebus_pair.core.model.errors import PairError
from tests.simulation.faults import Fault, Kind
from tests.simulation.nodes import Node
from tests.simulation.record import ENTITIES, HOUR, MINUTE
from tests.simulation.service import Service
from tests.simulation.spool import Files

if TYPE_CHECKING:
    from tests.simulation.history import History

_OUTAGES: Final = (Kind.REFUSED, Kind.LOST_BEFORE, Kind.LOST_AFTER, Kind.SILENT, Kind.SILENT_DONE, Kind.TOKEN)

_BREAKING: Final = frozenset({Kind.REFUSED, Kind.LOST_BEFORE})


class Troubles:
    """Breaks namespaces and the store, kills processes, and does what people do.

    :ivar next: done when the primary breaks next.
    """

    def __init__(self, history: History, primary: Service, secondary: Service) -> None:
        self._history = history
        self._record, self._store, self._random = history.record, history.store, history.random
        self._loop = history.loop
        self._primary, self._secondary = primary, secondary
        self.next = self._loop.create_future()

    def all(self) -> list[Coroutine[Any, Any, None]]:
        """Return what happens all the time."""
        return [self._break_things(), self._kill_processes(), self._operate()]

    async def _break_things(self) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(1 / (5 * MINUTE)))
            self._break()

    def _break(self) -> None:
        self._record.outcome.faults += 1
        choice = self._random.random()
        duration = min(self._random.lognormvariate(4.0, 1.5), HOUR)
        files = self._history.spool
        if files is not None and self._random.random() < 0.25:
            if self._random.random() < 0.7:
                self._break_both(duration)
            else:
                self._break_spool(files, duration)
        elif choice < 0.08:
            self._break_store(duration)
        elif choice < 0.10:
            self._delete_for(duration)
        else:
            service = self._primary if choice < 0.7 else self._secondary
            self._break_service(service, duration)

    def _break_service(self, service: Service, duration: float) -> None:
        random = self._random
        kinds = [each for each in Kind if service is self._primary or each is not Kind.NOT_FOUND]
        kind = random.choice(_OUTAGES if random.random() < 0.4 else kinds)
        paths = [each.path for each in service.namespace.list_queues()]
        path = None if random.random() < 0.5 else random.choice(paths)
        share = 1.0 if random.random() < 0.6 else random.uniform(0.1, 0.9)
        left = 10**9 if random.random() < 0.6 else random.randint(1, 5)
        delay = random.choice([0.5, 3.0, 12.0, 45.0])
        until = self._loop.time() + duration
        service.faults.active.append(Fault(kind, path, until, share, left, delay))
        # From the spool, messages go to the backlog with session order, and what that rejects is set aside.
        to_backlog = self._history.spool is not None and self._record.outcome.ordered
        if kind is Kind.REJECTED and (service is self._primary or to_backlog):
            verdict = self._history.verdict
            verdict.rejecting_until = max(verdict.rejecting_until, until)
        if kind in _BREAKING and path is None:
            service.disconnect()
        if service is self._primary:
            self.next.set_result(None)
            self.next = self._loop.create_future()
        self._record.note("fault", service.name, kind.name, path, round(duration, 3), round(share, 3), left, delay)

    def _break_both(self, duration: float) -> None:
        until = self._loop.time() + duration
        for service in (self._primary, self._secondary):
            kind = self._random.choice(_OUTAGES)
            service.faults.active.append(Fault(kind, None, until))
            if kind in _BREAKING:
                service.disconnect()
            self._record.note("fault", service.name, kind.name, "with the other", round(duration, 3))
        self.next.set_result(None)
        self.next = self._loop.create_future()

    def _break_spool(self, files: Files, duration: float) -> None:
        what = self._random.choice(["slow", "failing", "hanging"])
        self._record.note("fault", "spool", what, round(duration, 3))
        files.delay = 4.0 if what == "slow" else files.delay
        files.failing = what == "failing" or files.failing
        files.hanging = what == "hanging" or files.hanging
        self._loop.call_later(duration, files.mend, context=self._loop.world)

    def _break_store(self, duration: float) -> None:
        what = self._random.choice(["slow", "failing", "hanging"])
        self._record.note("fault", "store", what, round(duration, 3))
        self._store.delay = self._random.uniform(0.5, 8.0) if what == "slow" else self._store.delay
        self._store.failing = what == "failing" or self._store.failing
        if what == "hanging" and self._store.hanging is None:
            self._store.hanging = self._loop.create_future()
        self._loop.call_later(duration, self._mend_store, context=self._loop.world)

    def _mend_store(self) -> None:
        self._store.delay, self._store.failing = 0.01, False
        hanging, self._store.hanging = self._store.hanging, None
        if hanging is not None:
            hanging.set_result(None)

    def _delete_for(self, duration: float) -> None:
        entity = self._random.choice(list(ENTITIES))
        try:
            self._primary.namespace.delete_queue(entity)
        except Exception:  # noqa: BLE001 - it is deleted already
            return
        self._record.note("fault", "deleted", entity, round(duration, 3))
        self._loop.call_later(duration, self._create, entity, context=self._loop.world)

    def _create(self, entity: str) -> None:
        try:
            self._primary.create_queue(entity, requires_session=ENTITIES[entity][0])
        except EntityExists:
            return

    async def _kill_processes(self) -> None:
        while True:
            await asyncio.sleep(self._random.expovariate(1 / HOUR))
            if self._history.nodes:
                node = self._history.nodes[self._random.choice(sorted(self._history.nodes))]
                node.process.fuse = self._random.randint(1, 40)

    async def _operate(self) -> None:
        """Do by hand, or by a DAG, what may be done at any time."""
        while True:
            await asyncio.sleep(self._random.expovariate(1 / (20 * MINUTE)))
            if self._history.nodes:
                self._operate_once(self._history.nodes[self._random.choice(sorted(self._history.nodes))])

    def _operate_once(self, node: Node) -> None:
        entity, pair, random = self._random.choice(list(ENTITIES)), node.pair, self._random
        actions: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "fail over": lambda: pair.fail_over(entity, reason="by hand"),
            "ping": lambda: pair.ping(entity),
            "drain": lambda: pair.syphon().drain(),
            "drain for a while": lambda: _drain_for_a_while(pair, random.uniform(0, 5)),
            "close": lambda: self._close(node),
        }
        if self._history.spool is not None:
            actions["empty the spool"] = pair.empty_spool
        if not self._record.outcome.ordered:  # after a manual change, order is up to the caller
            actions["mark healthy"] = lambda: pair.mark_healthy(entity)
        name = random.choice(list(actions))
        self._record.note(node.name, name, entity)
        node.process.start(_quietly(actions[name]))

    async def _close(self, node: Node) -> None:
        await node.pair.close()
        if not node.process.dead:
            node.process.kill()

    def mend(self) -> None:
        """Mend everything that is broken."""
        self._record.note("mended")
        for service in (self._primary, self._secondary):
            service.faults.active.clear()
        self._mend_store()
        if self._history.spool is not None:
            self._history.spool.mend()
        for entity in ENTITIES:
            self._create(entity)
        for node in self._history.nodes.values():
            node.process.fuse = None


async def _quietly(act: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Do something that the state of the world may prevent."""
    with suppress(PairError, asyncio.TimeoutError):
        await act()


async def _drain_for_a_while(pair: NamespacePair, seconds: float) -> None:
    syphon = pair.syphon()
    draining = asyncio.ensure_future(syphon.drain())
    await asyncio.sleep(seconds)
    syphon.stop()
    await draining
