"""Does what a page shows: its commands, as they stand but for the ports."""

from __future__ import annotations

import itertools
import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

import httpx

from tests.system.demo.ports import PortReservation
from tests.system.demo.processes import Processes

__all__ = ["Shown", "do_what_is_shown"]

AMQP_PORT = "5672"
ADMIN_PORT = "5300"
READY_SECONDS = 20


@dataclass(frozen=True, slots=True)
class Shown:
    """The ports on which a command that a page shows listens here."""

    amqp_port: int
    admin_port: int

    def translated(self, text: str) -> str:
        """Return what the page shows with these ports."""
        return text.replace(AMQP_PORT, str(self.amqp_port)).replace(ADMIN_PORT, str(self.admin_port))


def do_what_is_shown(lines: list[str], *, processes: Processes, cwd: Path) -> Shown:
    """Start the command of the first line, leave it running, and make the requests of the others."""
    command, *requests = [shlex.split(line) for line in lines]
    ports = PortReservation()
    shown = Shown(amqp_port=ports.next_free(26672), admin_port=ports.next_free(26300))
    free = ["--amqp-port", str(shown.amqp_port), "--admin-port", str(shown.admin_port)]
    executable = Path(sys.executable).parent / command[0]
    processes.start("emulator", [str(executable), *command[1:], *free], env=os.environ, cwd=cwd)
    names = [value for option, value in itertools.pairwise(command) if option == "--namespace"]
    processes.wait_for_line("emulator", f"ready namespace={(names or [''])[-1]}", after=0, seconds=READY_SECONDS)
    for request in requests:
        status = _curl(request, shown=shown)
        if status >= httpx.codes.MULTIPLE_CHOICES:
            raise AssertionError(f"{shlex.join(request)}: status {status}")
    return shown


def _curl(words: list[str], *, shown: Shown) -> int:
    """Do what a line of curl would do, where curl is not installed, and return the status."""
    options = dict(zip(words[1:-1:2], words[2:-1:2], strict=True))
    name, _, value = options.get("-H", "").partition(": ")
    method = options.get("-X", "POST" if "-d" in options else "GET")
    headers = {name: value} if name else {}
    return httpx.request(method, shown.translated(words[-1]), content=options.get("-d"), headers=headers).status_code
