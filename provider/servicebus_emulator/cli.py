"""Options of the command line, in groups, and what they select."""

from __future__ import annotations

import argparse
import resource
import sys
from pathlib import Path
from typing import Final, NoReturn

from servicebus_emulator.amqp.transport.timeouts import ClientTimeouts
from servicebus_emulator.arm.addresses import Scope
from servicebus_emulator.certificates import GivenCertificate
from servicebus_emulator.engine.model.access_policy import DEFAULT_KEY, ROOT_POLICY
from servicebus_emulator.engine.namespace.tiers import Tier
from servicebus_emulator.logs import LogFormat, masked
from servicebus_emulator.security.bearer import DEVELOPMENT_CLIENT
from servicebus_emulator.security.settings import KEY_VARIABLE, SECRET_VARIABLE
from servicebus_emulator.version import version

DEFAULT_NAME: Final = "sbemulatorns"
"""The namespace served by default, named as in Microsoft's emulator."""

_AMQP_PORT: Final = 5672
_ADMIN_PORT: Final = 5300
_USAGE: Final = "%(prog)s [--namespace NAME]... [--config FILE] [--data DIR] [OPTION]..."
_DESCRIPTION: Final = """\
An embedded Service Bus for tests and demonstrations: AMQP 1.0, administration
and Azure Resource Manager for the unmodified SDKs. It prints a line on standard
output when it is ready, logs to standard error, and stops with Ctrl-C."""
_SHORT_HELP: Final = """\
usage: {prog} [--namespace NAME]... [--config FILE] [OPTION]...
       {prog} check FILE...

An embedded Service Bus for tests: AMQP 1.0, administration and Azure Resource
Manager for the unmodified SDKs. When ready it prints a line per namespace.

  --namespace NAME        a namespace to serve; repeatable
  --config FILE           entities to create, as for Microsoft's emulator
  --data DIR              keep everything in this folder (otherwise in memory)
  --amqp-port N           5672, counted up for further namespaces; 0 = any
  --admin-port N          5300, counted up for further namespaces; 0 = any
  --host ADDRESS          listen there and not on 127.0.0.1 only; needs a key
  --key-file FILE         the key of RootManageSharedAccessKey in connection
                          strings (otherwise SAS_KEY_VALUE)
  --open                  accept clients without tokens
  --fault KIND[,...]      break something, such as no-disposition,entity=flights
  --tier NAME, --throttle limits and credits of Basic, Standard or Premium
  --log-level LEVEL       DEBUG, INFO (default), WARNING or ERROR
  --help-all, --version   all options; the version

check FILE...             checks configuration files: line and reason
GET /health on an administration port tells whether the namespace is ready.
"""
_EXAMPLES: Final = """\
examples:
  %(prog)s --namespace contoso --namespace contoso-dr
  %(prog)s --config config.json --data ./state
  %(prog)s --namespace contoso --fault no-disposition,entity=flights,count=3
"""


_DEFAULT_TIMEOUTS: Final = ClientTimeouts()
_TIMEOUT_HELP: Final = {
    "greeting_seconds": "time limit for the first bytes of a client, and for its TLS handshake",
    "opening_seconds": "time limit for opening the AMQP connection; 0 = none",
    "link_idle_seconds": "detach an idle link after this time with amqp:link:detach-forced; 0 = never",
    "unlinked_seconds": "close a connection without links after this time with amqp:connection:forced; 0 = never",
    "silence_seconds": "close a silent connection after this time, which is announced; 0 = never",
}


class _Parser(argparse.ArgumentParser):
    """Masks in its errors the keys that somebody gave as another argument."""

    def error(self, message: str) -> NoReturn:
        super().error(masked(message))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = _Parser(
        prog="servicebus-emulator",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
    )
    parser.add_argument("-h", "--help", action=_ShortHelp, nargs=0, help="show the usual options and exit")
    parser.add_argument("--help-all", action="help", help="show all options and exit")
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    _add_content_options(parser)
    _add_address_options(parser)
    _add_security_options(parser)
    _add_fault_options(parser)
    add_wire_options(parser)
    _add_log_options(parser)
    return parser


def check_parser() -> argparse.ArgumentParser:
    """Return the parser of the command ``check``."""
    parser = argparse.ArgumentParser(prog="servicebus-emulator check", description="Check configuration files.")
    parser.add_argument("files", type=Path, nargs="+", metavar="FILE", help="a file in the format of --config")
    return parser


class _ShortHelp(argparse.Action):
    """Prints what fits a screen."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(_SHORT_HELP.format(prog=parser.prog))
        parser.exit()


class _Version(argparse.Action):
    """Prints the version, which is looked up only on request because that is slow."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        sys.stdout.write(f"{parser.prog} {version()}\n")
        parser.exit()


def _add_content_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("content")
    group.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NAME",
        help=f"a namespace to serve; repeatable (default: those of --config, otherwise {DEFAULT_NAME})",
    )
    group.add_argument(
        "--config", type=Path, metavar="FILE", help="entities to create, in the format of Microsoft's emulator"
    )
    group.add_argument("--data", type=Path, metavar="DIR", help="folder for persistent state (default: in memory only)")
    group.add_argument(
        "--tier", choices=[str(each) for each in Tier], help="accept what this tier of the service does (default: all)"
    )
    group.add_argument(
        "--throttle", action="store_true", help="answer that the server is busy where the tier does (default: never)"
    )
    group.add_argument(
        "--deliver-pings", action="store_true", help="deliver pings like any other message (default: accept and drop)"
    )
    group.add_argument(
        "--sparse-answers",
        action="store_true",
        help="leave out the info of errors and the maximum sizes of links, as the service may (default: never)",
    )


def _add_address_options(parser: argparse.ArgumentParser) -> None:
    scope = Scope()
    group = parser.add_argument_group("addresses")
    group.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    counted = "of the first namespace, counted up for the next"
    for option, default, text in (
        ("--amqp-port", _AMQP_PORT, f"AMQP port {counted}"),
        ("--admin-port", _ADMIN_PORT, f"administration port {counted}"),
        ("--arm-port", 0, "port of the ARM endpoint, one for all namespaces"),
    ):
        group.add_argument(
            option, type=int, default=default, metavar="N", help=f"{text}; 0 = any (default: %(default)s)"
        )
    group.add_argument(
        "--arm-subscription",
        default=scope.subscription,
        metavar="ID",
        help="subscription id of the ARM endpoint (default: %(default)s)",
    )
    group.add_argument(
        "--arm-resource-group",
        default=scope.resource_group,
        metavar="NAME",
        help="resource group of the ARM endpoint (default: %(default)s)",
    )


def _add_security_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "security",
        f"The key of each namespace's {ROOT_POLICY} is read from the\n"
        f"environment variable {KEY_VARIABLE} (default: the well-known\n"
        f"{DEFAULT_KEY}, for loopback addresses only).",
    )
    group.add_argument(
        "--open", action="store_true", help="disable all checks: tokens are neither needed nor read (default: checked)"
    )
    group.add_argument(
        "--any-audience",
        action="store_true",
        help="accept tokens for entities that do not exist, and refuse the link instead (default: refuse the token)",
    )
    group.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        help=f"a file with the key, instead of the environment variable {KEY_VARIABLE}",
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


def _add_fault_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("faults and time")
    group.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND[,FIELD=VALUE]...",
        help="a fault to set at the start, such as no-disposition,entity=flights,count=3; repeatable",
    )
    group.add_argument("--faults", type=Path, metavar="FILE", help="a JSON list of faults to set at the start")
    group.add_argument(
        "--fault-seed",
        type=int,
        default=0,
        metavar="N",
        help="seed of faults with a probability (default: %(default)s)",
    )
    group.add_argument(
        "--allow-time-shift", action="store_true", help="allow POST /$time to move the clock forward (default: refused)"
    )


def _add_log_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("log")
    group.add_argument(
        "--log-level",
        default="INFO",
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="lowest level to log (default: %(default)s)",
    )
    group.add_argument(
        "--log-format",
        default="text",
        choices=[str(each) for each in LogFormat],
        help="format of the log, one event per line (default: %(default)s)",
    )


def add_wire_options(parser: argparse.ArgumentParser) -> None:
    """Add the options for TLS, message sizes and time limits."""
    tls = parser.add_argument_group("TLS and sizes")
    tls.add_argument(
        "--certificate",
        type=Path,
        metavar="FILE",
        help="the server's TLS certificate, in PEM (default: issued for this machine)",
    )
    tls.add_argument("--key", type=Path, metavar="FILE", help="the private key of --certificate, in PEM")
    tls.add_argument(
        "--certificate-name",
        action="append",
        default=[],
        metavar="HOST",
        help="another name that clients may connect to, for the certificate that is issued; repeatable",
    )
    tls.add_argument(
        "--message-kilobytes",
        type=int,
        default=1,
        metavar="N",
        help="smallest message limit of new queues and topics: 1024 as in the Premium tier, up to 102400"
        " (default: what each requests, otherwise 256)",
    )
    timeouts = parser.add_argument_group("time limits for clients")
    for name, text in _TIMEOUT_HELP.items():
        timeouts.add_argument(
            f"--{name.replace('_', '-')}",
            type=float,
            default=getattr(_DEFAULT_TIMEOUTS, name),
            metavar="N",
            help=f"{text} (default: %(default)g)",
        )


def client_timeouts(options: argparse.Namespace) -> ClientTimeouts:
    """Return the time limits for clients.

    :raises ValueError: a time is negative or not a number.
    """
    limits = {name: _seconds_or_none(options, name) for name in _TIMEOUT_HELP if name != "greeting_seconds"}
    return ClientTimeouts(greeting_seconds=options.greeting_seconds, **limits)


def given_certificate(options: argparse.Namespace) -> GivenCertificate | None:
    """Return the certificate from the command line, if any.

    :raises CertificateError: it cannot be used.
    :raises ValueError: the certificate or its key is missing.
    """
    certificate, key = options.certificate, options.key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ValueError(f"--certificate is {certificate} and --key is {key}; allowed: both, or neither")
    return GivenCertificate(certificate, key=key)


def _seconds_or_none(options: argparse.Namespace, name: str) -> float | None:
    seconds: float = getattr(options, name)
    if not seconds >= 0:
        option = f"--{name.replace('_', '-')}"
        raise ValueError(f"{option} is {seconds:g}; allowed: seconds above 0, or 0 for never")
    return None if seconds == 0 else seconds


def allow_many_connections() -> None:
    """Raise the limit of open files, and so of connections, to the hard limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
