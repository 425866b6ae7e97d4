"""The options of the command line, in groups."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from servicebus_emulator.about import version
from servicebus_emulator.arm.addresses import Scope
from servicebus_emulator.engine.access_rules import DEFAULT_KEY, ROOT_RULE
from servicebus_emulator.logs import LogFormat
from servicebus_emulator.security.bearer import DEVELOPMENT_CLIENT
from servicebus_emulator.security.settings import KEY_VARIABLE, SECRET_VARIABLE
from servicebus_emulator.wire_options import add_wire_options

__all__ = ["DEFAULT_NAME", "make_parser"]

DEFAULT_NAME: Final = "sbemulatorns"
"""The namespace that is served when none is named: that of Microsoft's emulator."""

_AMQP_PORT: Final = 5672
_ADMIN_PORT: Final = 5300
_USAGE: Final = "%(prog)s [--namespace NAME]... [--config FILE] [--data DIR] [OPTION]..."
_DESCRIPTION: Final = """\
An embedded Service Bus for tests and demonstrations: AMQP 1.0, administration
and Azure Resource Manager, as the unmodified SDKs speak them. It says on
standard output when it is ready, logs on standard error, and stops with Ctrl-C."""
_EXAMPLES: Final = """\
examples:
  %(prog)s --namespace contoso --namespace contoso-dr
  %(prog)s --config config.json --data ./state
  %(prog)s --namespace contoso --fault no-disposition,entity=flights,count=3
"""


def make_parser() -> argparse.ArgumentParser:
    """Return what reads the command line."""
    parser = argparse.ArgumentParser(
        prog="servicebus-emulator",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    _add_contents(parser)
    _add_places(parser)
    _add_doors(parser)
    _add_breakage(parser)
    add_wire_options(parser)
    _add_log(parser)
    return parser


class _Version(argparse.Action):
    """Looks the version up when it is asked for, since that takes time."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"{parser.prog} {version()}\n")
        parser.exit()


def _add_contents(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is served")
    group.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NAME",
        help=f"a namespace to serve; repeatable (default: those of --config, else {DEFAULT_NAME})",
    )
    group.add_argument(
        "--config", type=Path, metavar="FILE", help="entities to begin with, in the shape of Microsoft's emulator"
    )
    group.add_argument(
        "--data", type=Path, metavar="DIR", help="the folder in which the state is kept (default: in memory only)"
    )
    group.add_argument(
        "--deliver-pings", action="store_true", help="deliver pings like any other message (default: accept and drop)"
    )


def _add_places(parser: argparse.ArgumentParser) -> None:
    scope = Scope()
    group = parser.add_argument_group("where")
    group.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    group.add_argument(
        "--amqp-port",
        type=int,
        default=_AMQP_PORT,
        metavar="N",
        help="AMQP port of the first namespace, counted up for the next; 0 = any (default: %(default)s)",
    )
    group.add_argument(
        "--admin-port",
        type=int,
        default=_ADMIN_PORT,
        metavar="N",
        help="administration port of the first namespace, counted up for the next; 0 = any (default: %(default)s)",
    )
    group.add_argument(
        "--arm-port",
        type=int,
        default=0,
        metavar="N",
        help="port of the ARM interface, one for all namespaces; 0 = any (default: %(default)s)",
    )
    group.add_argument(
        "--arm-subscription",
        default=scope.subscription,
        metavar="ID",
        help="the subscription that the ARM interface has (default: %(default)s)",
    )
    group.add_argument(
        "--arm-resource-group",
        default=scope.resource_group,
        metavar="NAME",
        help="the resource group that the ARM interface has (default: %(default)s)",
    )


def _add_doors(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "who is let in",
        f"The key of each namespace's {ROOT_RULE} is read from the\n"
        f"environment variable {KEY_VARIABLE} (default: the well-known\n"
        f"{DEFAULT_KEY}, for loopback addresses only).",
    )
    group.add_argument(
        "--open", action="store_true", help="let everybody in: tokens are neither needed nor read (default: checked)"
    )
    group.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        help=f"a file with the key, instead of the environment's {KEY_VARIABLE}",
    )
    group.add_argument(
        "--client",
        action="append",
        default=[],
        metavar="ID[:ROLE]",
        help=(
            "a client that may ask the token endpoint for bearer tokens, as Owner (default), Sender or Receiver; its"
            f" secret is read from the environment variable {SECRET_VARIABLE}, or {SECRET_VARIABLE}_<ID>; repeatable"
            f" (default, on loopback addresses: {DEVELOPMENT_CLIENT.id} with the secret {DEVELOPMENT_CLIENT.secret})"
        ),
    )


def _add_breakage(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what breaks, and what time it is")
    group.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND[,FIELD=VALUE]...",
        help="something to break from the beginning, such as no-disposition,entity=flights,count=3; repeatable",
    )
    group.add_argument("--faults", type=Path, metavar="FILE", help="a JSON list of things to break")
    group.add_argument(
        "--fault-seed",
        type=int,
        default=0,
        metavar="N",
        help="the luck of faults with a probability (default: %(default)s)",
    )
    group.add_argument(
        "--allow-time-shift", action="store_true", help="let the clock be put forward: POST /$time (default: refused)"
    )


def _add_log(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("log")
    group.add_argument(
        "--log-level",
        default="INFO",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="what is logged at least (default: %(default)s)",
    )
    group.add_argument(
        "--log-format",
        default="text",
        choices=[str(each) for each in LogFormat],
        help="one event per line, as that (default: %(default)s)",
    )
