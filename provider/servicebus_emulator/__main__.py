"""The command line: ``python -m servicebus_emulator``."""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from servicebus_emulator.config import ConfigError, NamespaceConfig, load_config
from servicebus_emulator.engine.errors import BrokerError
from servicebus_emulator.engine.journal import JournalError
from servicebus_emulator.fault_reading import fault_from_text, load_faults
from servicebus_emulator.faults import Fault
from servicebus_emulator.hosting import Emulator
from servicebus_emulator.logs import LogFormat, configure, event
from servicebus_emulator.security.bearer import DEVELOPMENT_CLIENT, Client, Role
from servicebus_emulator.security.rules import DEFAULT_KEY, ROOT_RULE
from servicebus_emulator.security.settings import KEY_VARIABLE, SECRET_VARIABLE
from servicebus_emulator.wire_options import (
    add_wire_options,
    allow_many_connections,
    given_certificate,
    patience_of,
)

__all__ = ["main"]

_DEFAULT_NAME: Final = "sbemulatorns"
_AMQP_PORT: Final = 5672
_ADMIN_PORT: Final = 5300
_GARBAGE_THRESHOLDS: Final = (50_000, 50, 100)

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve namespaces until SIGTERM or SIGINT; return the exit status: 0 after a signal, 1 when it cannot serve.

    Bad arguments end it with status 2. It stops within a second; a second signal ends it at once, with 128 and the
    signal's number.

    One line per namespace on standard output says when it is ready:
    ``ready namespace=contoso amqp=127.0.0.1:5672 admin=127.0.0.1:5300 ca=data/tls/ca.pem``. Both ports speak TLS too,
    with a certificate under that authority. The log is on standard error.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    configure(level=options.log_level, log_format=LogFormat(options.log_format))
    try:
        configs = () if options.config is None else load_config(options.config)
        emulator = Emulator(
            _names(options.namespace, configs=configs),
            host=options.host,
            amqp_port=options.amqp_port,
            admin_port=options.admin_port,
            data=options.data,
            allow_time_shift=options.allow_time_shift,
            deliver_pings=options.deliver_pings,
            configs=configs,
            faults=_faults(options),
            fault_seed=options.fault_seed,
            open=options.open,
            key=_key(options.key_file),
            clients=_clients(options.client),
            certificates=given_certificate(options),
            patience=patience_of(options),
            message_kilobytes=options.message_kilobytes,
        )
    except (ConfigError, ValueError) as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"--config cannot be read: {error}")
    allow_many_connections()
    # Messages make no cycles, and walking a million of them for cycles would take as long as taking them in.
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    return asyncio.run(_serve(emulator))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="servicebus-emulator",
        description="An embedded Service Bus: AMQP 1.0 and the administration API, for tests and demonstrations.",
        epilog=(
            f"The key of each namespace's {ROOT_RULE} is read from the environment variable {KEY_VARIABLE}"
            f" (default: the well-known {DEFAULT_KEY}, for loopback addresses only)."
        ),
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="entities to begin with, in the shape of Microsoft's emulator"
    )
    parser.add_argument(
        "--namespace",
        action="append",
        default=[],
        metavar="NAME",
        help=f"a namespace to serve; repeatable (default: those of --config, else {_DEFAULT_NAME})",
    )
    parser.add_argument("--host", default="127.0.0.1", help="the address to listen on (default: %(default)s)")
    parser.add_argument(
        "--amqp-port",
        type=int,
        default=_AMQP_PORT,
        metavar="N",
        help="AMQP port of the first namespace, counted up for the next; 0 = any (default: %(default)s)",
    )
    parser.add_argument(
        "--admin-port",
        type=int,
        default=_ADMIN_PORT,
        metavar="N",
        help="administration port of the first namespace, counted up for the next; 0 = any (default: %(default)s)",
    )
    parser.add_argument(
        "--data", type=Path, metavar="DIR", help="the folder in which the state is kept (default: in memory only)"
    )
    parser.add_argument(
        "--fault",
        action="append",
        default=[],
        metavar="KIND[,FIELD=VALUE]...",
        help="something to break from the beginning, such as no-disposition,entity=flights,count=3; repeatable",
    )
    parser.add_argument(
        "--allow-time-shift", action="store_true", help="let the clock be put forward: POST /$time, for tests"
    )
    parser.add_argument(
        "--deliver-pings", action="store_true", help="deliver pings like any other message (default: accept and drop)"
    )
    parser.add_argument("--faults", type=Path, metavar="FILE", help="a JSON list of things to break")
    parser.add_argument(
        "--fault-seed", type=int, default=0, metavar="N", help="the luck of faults with a probability (default: 0)"
    )
    parser.add_argument(
        "--open", action="store_true", help="let everybody in: tokens are neither needed nor read (default: checked)"
    )
    parser.add_argument(
        "--key-file",
        type=Path,
        metavar="FILE",
        help=f"a file with the key, instead of the environment's {KEY_VARIABLE}",
    )
    parser.add_argument(
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
    parser.add_argument(
        "--log-level", default="INFO", choices=["DEBUG", "INFO", "WARNING", "ERROR"], help="(default: %(default)s)"
    )
    add_wire_options(parser)
    parser.add_argument(
        "--log-format", default="text", choices=[str(each) for each in LogFormat], help="(default: %(default)s)"
    )
    return parser


def _names(wanted: Sequence[str], *, configs: Sequence[NamespaceConfig]) -> list[str]:
    if len(wanted) > 0:
        return list(wanted)
    return [config.name for config in configs] or [_DEFAULT_NAME]


def _faults(options: argparse.Namespace) -> list[Fault]:
    from_file = () if options.faults is None else load_faults(options.faults)
    return [*from_file, *(fault_from_text(text) for text in options.fault)]


def _key(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(KEY_VARIABLE)
    try:
        return file.read_text(encoding="utf-8").strip()
    except OSError as error:
        raise ValueError(f"--key-file cannot be read: {error}") from error


def _clients(given: Sequence[str]) -> list[Client] | None:
    return None if len(given) == 0 else [_client(text) for text in given]


def _client(text: str) -> Client:
    client_id, _, role = text.partition(":")
    if role not in ("", *(each.value for each in Role)):
        raise ValueError(f"--client {client_id!r} has the role {role!r}; allowed: {', '.join(Role)}")
    own = f"{SECRET_VARIABLE}_{re.sub('[^A-Z0-9]', '_', client_id.upper())}"
    secret = os.environ.get(own, os.environ.get(SECRET_VARIABLE))
    if secret is None:
        raise ValueError(f"--client {client_id!r} has no secret; allowed: one in {own} or {SECRET_VARIABLE}")
    return Client(id=client_id, secret=secret, role=Role.OWNER if role == "" else Role(role))


async def _serve(emulator: Emulator) -> int:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _end, number, stopped)
    try:
        async with emulator:
            for each in emulator.namespaces:
                amqp, admin = f"{each.host}:{each.amqp_port}", f"{each.host}:{each.admin_port}"
                # Whoever started the process waits for this line.
                print(f"ready namespace={each.name} amqp={amqp} admin={admin} ca={each.ca_file}", flush=True)  # noqa: T201
            return await _until(stopped, emulator=emulator)
    except (OSError, JournalError, BrokerError) as error:
        _log.critical("error: %s", error, extra=event("failed"))
        return 1


def _end(number: signal.Signals, stopped: asyncio.Event) -> None:
    if stopped.is_set():
        os._exit(128 + number)
    _log.info("stopping: %s", number.name, extra=event("stopping", signal=number.name))
    stopped.set()


async def _until(stopped: asyncio.Event, *, emulator: Emulator) -> int:
    failure = asyncio.ensure_future(emulator.wait_for_failure())
    stop = asyncio.ensure_future(stopped.wait())
    done, pending = await asyncio.wait([failure, stop], return_when=asyncio.FIRST_COMPLETED)
    for task in pending:
        task.cancel()
    for task in done:
        task.result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
