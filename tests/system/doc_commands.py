"""Runs the commands of a documentation page, with other ports."""

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

AMQP_PORT = "5672"
ADMIN_PORT = "5300"
READY_TIMEOUT = 20
_MAX_NAMESPACES = 8


@dataclass(frozen=True, slots=True)
class CommandPorts:
    """Ports used instead of the documented ones."""

    amqp_port: int
    admin_port: int

    def substitute(self, text: str) -> str:
        return text.replace(AMQP_PORT, str(self.amqp_port)).replace(ADMIN_PORT, str(self.admin_port))


def run_commands(lines: list[str], *, processes: Processes, cwd: Path) -> CommandPorts:
    """Start the command of the first line in the background, and run the others as HTTP requests."""
    command, *requests = [shlex.split(line) for line in lines]
    ports = PortReservation()
    # Each namespace of a command takes the next port.
    ports_used = CommandPorts(
        amqp_port=ports.next_free(26672, step=_MAX_NAMESPACES), admin_port=ports.next_free(26300, step=_MAX_NAMESPACES)
    )
    free = ["--amqp-port", str(ports_used.amqp_port), "--admin-port", str(ports_used.admin_port)]
    executable = Path(sys.executable).parent / Path(command[0]).name
    processes.start("emulator", [str(executable), *command[1:], *free], env=os.environ, cwd=cwd)
    names = [value for option, value in itertools.pairwise(command) if option == "--namespace"]
    processes.wait_for_line("emulator", f"ready namespace={(names or [''])[-1]}", after=0, seconds=READY_TIMEOUT)
    for request in requests:
        status = _curl(request, ports_used=ports_used)
        if status >= httpx.codes.MULTIPLE_CHOICES:
            raise AssertionError(f"{shlex.join(request)}: status {status}")
    return ports_used


def _curl(words: list[str], *, ports_used: CommandPorts) -> int:
    """Send the request of a curl command, without curl, and return the status."""
    options = dict(zip(words[1:-1:2], words[2:-1:2], strict=True))
    name, _, value = options.get("-H", "").partition(": ")
    method = options.get("-X", "POST" if "-d" in options else "GET")
    headers = {name: value} if name else {}
    return httpx.request(
        method, ports_used.substitute(words[-1]), content=options.get("-d"), headers=headers
    ).status_code
