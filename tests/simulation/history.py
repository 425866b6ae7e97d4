"""One history: two processes send to entities of a pair, while the world breaks and kills what it can.

When it ends, everything is mended, and what must hold is checked: every accepted message is on the primary, or was
dead-lettered or set aside in the spool for a reason that SPEC.md allows; with ``ordering="session"`` each session is in
order; the backlog was drained and the spool emptied, every entity is healthy and every send has ended.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from datetime import timedelta
from random import Random
from typing import Any, Final

from servicebus_pair.core import PairOptions
from tests.simulation.clockwork import Clockwork
from tests.simulation.nodes import Machine, Node, SharedStore
from tests.simulation.record import BACKLOG_QUEUES, ENTITIES, HOUR, QUEUES, SESSION_QUEUES, Outcome, Record
from tests.simulation.sdk import replaced_sdk
from tests.simulation.service import Service
from tests.simulation.spool import Files
from tests.simulation.troubles import Troubles
from tests.simulation.verdict import Verdict
from tests.simulation.writers import Writers

# How long everything may take to recover once all is mended.
LONGEST_RECOVERY: Final = 3 * HOUR


class History:
    """Runs one history; the same arguments give the same history.

    :param hours: simulated time until everything is mended.
    :param poison: the share of messages that the service rejects whatever the entity.
    :param spool: pairs have a spool, and both namespaces are down at times.
    :param trace: receives a line for each thing that happens.
    :ivar nodes: the processes that run now, by name.
    """

    def __init__(
        self,
        seed: int,
        *,
        hours: float,
        ordered: bool,
        poison: float = 0.01,
        spool: bool = False,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        self.random = Random(f"plan {seed}")  # noqa: S311 - a repeatable plan
        self.loop = Clockwork()
        self.loop.set_exception_handler(self._on_unhandled)
        self.record = Record(Outcome(seed, ordered), self.loop, trace=trace)
        self.verdict = Verdict(self.record, self.loop)
        self.store = SharedStore(Random(f"store {seed}"))  # noqa: S311
        self.spool: Files | None = None
        if spool:
            self.spool = Files(self.loop, Random(f"spool {seed}"), on_set_aside=self.verdict.set_aside)  # noqa: S311
        self.nodes: dict[str, Node] = {}
        self._gone: list[Node] = []
        self._end = hours * HOUR
        self._raising = trace is not None
        self._failover = self.random.choice([0.0, 5.0, 60.0])
        self._ping = self.random.choice([10.0, 60.0])
        self.writers = Writers(self, end=self._end, poison=poison)

    def options(self, *, enable_syphon: bool) -> PairOptions:
        """Return the options of a process."""
        return PairOptions(
            backlog_queue_count=QUEUES,
            failover_interval=timedelta(seconds=self._failover),
            ping_primary_interval=timedelta(seconds=self._ping),
            enable_syphon=enable_syphon,
            ordering="session" if self.record.outcome.ordered else "none",
            spool=None if self.spool is None else "/in-memory",
            spool_max_bytes=10**9 if self.record.outcome.seed % 3 else 50_000,
        )

    def run(self) -> Outcome:
        """Run the history and return its outcome."""
        outcome = self.record.outcome
        with _undisturbed(self.loop), nullcontext() if self.spool is None else self.spool.replaced_storage():
            try:
                self.primary = Service(self.loop, "contoso", random=Random(f"primary {outcome.seed}"))  # noqa: S311
                self.secondary = Service(self.loop, "contoso-dr", random=Random(f"secondary {outcome.seed}"))  # noqa: S311
                self.troubles = Troubles(self, self.primary, self.secondary)
                services = {"contoso": self.primary, "contoso-dr": self.secondary}
                # One history of four through the public interface only; sending that way takes twice as long.
                with replaced_sdk(services, preencoded=outcome.seed % 4 != 0):
                    self.loop.run_until_complete(self._live())
                    self.verdict.check(self.primary, self.secondary)
            except Exception as error:
                self.record.violate(f"{type(error).__name__}: {error}")
                if self._raising:
                    raise
            finally:
                self.record.ended = True
                with replaced_sdk({}):
                    self.loop.run_until_complete(self._reap())
                self.loop.close()
        outcome.digest = self.record.digest()
        return outcome

    def _on_unhandled(self, _: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """A task that ended with an unexpected error, such as a syphon, would be missed by nobody."""
        error = context.get("exception")
        if error is not None and not self.record.ended:
            self.record.violate(f"unhandled: {type(error).__name__}: {error}")

    async def _live(self) -> None:
        for entity, (requires_session, _) in ENTITIES.items():
            self.primary.create_queue(entity, requires_session=requires_session)
        for path in BACKLOG_QUEUES:
            self.secondary.create_queue(path, max_delivery_count=2**31 - 1)
        for path in SESSION_QUEUES:
            self.secondary.create_queue(path, max_delivery_count=2**31 - 1, requires_session=True)
        self.primary.witness.on_stored = lambda name: self.verdict.arrived(self.primary, name)
        self.secondary.witness.on_stored = lambda name: self.record.note("backlog", name)
        for name in ("p", "q"):
            self._start(name)
        troubles = [self.loop.create_task(each) for each in self.troubles.all()]
        writers = [self.loop.create_task(each) for each in self.writers.all()]
        await asyncio.sleep(self._end)
        for task in troubles:
            task.cancel()
        self.troubles.mend()
        await self._recover([*troubles, *writers])
        self.record.outcome.seconds = self.loop.time()

    def _start(self, name: str) -> None:
        self.nodes[name] = Node(self, name, enable_syphon=name == "q" or self.random.random() < 0.5)
        self.record.note("start", name)

    def killed(self, process: Machine) -> None:
        """Note that a process was killed, and start it again after a while."""
        self.record.outcome.kills += 1
        self.record.note("kill", process.name)
        for service in (self.primary, self.secondary):
            service.disconnect(process)
        node = self.nodes.pop(process.name)
        self._gone.append(node)
        node.died.set_result(None)
        pause = self.random.uniform(0.1, 90)
        self.loop.call_later(pause, self._start, process.name, context=self.loop.world)

    async def _recover(self, running: Sequence[asyncio.Task[None]]) -> None:
        """Wait until the running processes have delivered and drained everything and found everything healthy."""
        mended = self.loop.time()
        while self.loop.time() - mended < LONGEST_RECOVERY:
            for node in self.nodes.values():
                node.process.fuse = None
            await asyncio.sleep(30)
            if not self.writers.writing and not self._unfinished():
                break
        else:
            self.record.violate(f"{LONGEST_RECOVERY:g} s after everything was mended: {self._unfinished()}")
        for task in running:
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.record.violate(f"the plan failed: {task.exception()!r}")
            task.cancel()

    def _unfinished(self) -> str:
        left = {path: self.secondary.entity(path).counts().active for path in (*BACKLOG_QUEUES, *SESSION_QUEUES)}
        failed_over = [
            f"{entity} is failed over for {name}"
            for name, node in self.nodes.items()
            for entity in ENTITIES
            if node.pair.health(entity).failed_over
        ]
        sends = [f"{self.writers.writing} sends do not end"] if self.writers.writing else []
        held = [f"{path} holds {count}" for path, count in left.items() if count]
        if self.spool is not None and (waiting := self.spool.waiting()):
            held.append(f"the spool holds {len(waiting)}")
        return ", ".join([*sends, *held, *failed_over])

    async def _reap(self) -> None:
        """End all tasks, because Python warns about those that never end."""
        for node in (*self._gone, *self.nodes.values()):
            node.process.dead = True
            node.process.resume()
        for _ in range(50):
            left = asyncio.all_tasks(self.loop) - {asyncio.current_task()}
            if not left:
                return
            for task in sorted(left, key=hash):
                task.cancel()
            await asyncio.wait(left, timeout=10)


@contextmanager
def _undisturbed(loop: Clockwork) -> Iterator[None]:
    """Patch the clocks; keep the garbage collector, whose timing differs between runs, and log lines away."""
    with ExitStack() as stack:
        stack.enter_context(loop.patched_clocks())
        logging.disable(logging.CRITICAL)
        stack.callback(logging.disable, logging.NOTSET)
        if gc.isenabled():
            gc.collect()
            gc.disable()
            stack.callback(gc.enable)
        yield
