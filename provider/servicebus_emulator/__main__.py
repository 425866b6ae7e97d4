"""The command line: ``python -m servicebus_emulator``."""

from __future__ import annotations

import argparse
import asyncio
import errno
import gc
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from servicebus_emulator.arm.addresses import Scope
from servicebus_emulator.certificates import CertificateSource, IssuedCertificate
from servicebus_emulator.cli import (
    DEFAULT_NAME,
    allow_many_connections,
    check_parser,
    client_timeouts,
    given_certificate,
    make_parser,
)
from servicebus_emulator.config import ConfigError, NamespaceConfig, load_config
from servicebus_emulator.config_check import check_files, explain
from servicebus_emulator.emulator import Emulator
from servicebus_emulator.engine.model.errors import BrokerError
from servicebus_emulator.engine.namespace.tiers import Tier
from servicebus_emulator.engine.runtime.journal import JournalError
from servicebus_emulator.faults import Fault, FaultError
from servicebus_emulator.faults.codec import fault_from_text, load_faults
from servicebus_emulator.logs import LogFormat, configure, event
from servicebus_emulator.security.bearer import Client, Role
from servicebus_emulator.security.settings import KEY_VARIABLE, SECRET_VARIABLE

_MAX_KEY_CHARACTERS: Final = 64 * 1024
_GARBAGE_THRESHOLDS: Final = (50_000, 50, 100)

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve namespaces until SIGTERM or SIGINT; return the exit status: 0 after a signal, 1 when it cannot serve.

    Invalid arguments end it with status 2. It stops within a second; a second signal ends it at once, with status 128
    plus the number of the signal.

    When it is ready it prints a line per namespace on standard output, such as
    ``ready namespace=contoso amqp=127.0.0.1:5672 admin=127.0.0.1:5300 ca=data/tls/ca.pem``, and the address of the ARM
    interface, ``ready arm=https://127.0.0.1:5400``. All ports accept TLS, with a certificate of that authority. The log
    is on standard error.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["check"]:
        return check_files(check_parser().parse_args(arguments[1:]).files)
    parser = make_parser()
    options = parser.parse_args(arguments)
    configure(level=options.log_level, log_format=LogFormat(options.log_format))
    try:
        configs = () if options.config is None else load_config(options.config)
        certificates: CertificateSource | None = given_certificate(options)
        if certificates is None:
            certificates = IssuedCertificate(
                None if options.data is None else options.data / "tls", names=[options.host, *options.certificate_name]
            )
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
            any_audience=options.any_audience,
            sparse_answers=options.sparse_answers,
            certificates=certificates,
            timeouts=client_timeouts(options),
            message_kilobytes=options.message_kilobytes,
            tier=None if options.tier is None else Tier(options.tier),
            throttle=options.throttle,
            arm_port=options.arm_port,
            arm_scope=Scope(subscription=options.arm_subscription, resource_group=options.arm_resource_group),
        )
    except ConfigError as error:
        parser.error(f"--config {explain(options.config, error)}")
    except ValueError as error:
        parser.error(str(error))
    except OSError as error:
        parser.error(f"--config cannot be read: {error}")
    allow_many_connections()
    # Messages form no cycles, and a search among a million of them would take as long as receiving them.
    gc.set_threshold(*_GARBAGE_THRESHOLDS)
    return asyncio.run(_serve(emulator, certificates=certificates))


def _names(wanted: Sequence[str], *, configs: Sequence[NamespaceConfig]) -> list[str]:
    if len(wanted) > 0:
        return list(wanted)
    return [config.name for config in configs] or [DEFAULT_NAME]


def _faults(options: argparse.Namespace) -> list[Fault]:
    try:
        from_file = () if options.faults is None else load_faults(options.faults)
    except FaultError as error:
        raise ValueError(f"--faults {options.faults}: {error}") from error
    return [*from_file, *(fault_from_text(text) for text in options.fault)]


def _key(file: Path | None) -> str | None:
    if file is None:
        return os.environ.get(KEY_VARIABLE)
    try:
        # A pipe is a good way to hand over a key; a device would have no end.
        with file.open(encoding="utf-8") as source:
            return source.read(_MAX_KEY_CHARACTERS).strip()
    except OSError as error:
        raise ValueError(f"--key-file cannot be read: {error}") from error


def _clients(given: Sequence[str]) -> list[Client] | None:
    return None if len(given) == 0 else [_client(text) for text in given]


def _client(text: str) -> Client:
    client_id, _, role = text.partition(":")
    if role not in ("", *(each.value for each in Role)):
        raise ValueError(f"--client {client_id!r} has a role that does not exist; allowed: {', '.join(Role)}")
    own = f"{SECRET_VARIABLE}_{re.sub('[^A-Z0-9]', '_', client_id.upper())}"
    secret = os.environ.get(own, os.environ.get(SECRET_VARIABLE))
    if secret is None:
        raise ValueError(f"--client {client_id!r} has no secret; allowed: one in {own} or {SECRET_VARIABLE}")
    return Client(id=client_id, secret=secret, role=Role.OWNER if role == "" else Role(role))


async def _serve(emulator: Emulator, *, certificates: CertificateSource) -> int:
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, _end, number, stopped)
    try:
        certificates.begin()
        async with emulator:
            for each in emulator.namespaces:
                amqp, admin = f"{each.host}:{each.amqp_port}", f"{each.host}:{each.admin_port}"
                # The parent process waits for this line.
                print(f"ready namespace={each.name} amqp={amqp} admin={admin} ca={each.ca_file}", flush=True)  # noqa: T201
            print(f"ready arm={emulator.arm_url}", flush=True)  # noqa: T201
            return await _until(stopped, emulator=emulator)
    except (OSError, JournalError, BrokerError) as error:
        is_taken = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
        hint = "; choose other ports with --amqp-port, --admin-port and --arm-port (0 = any)" if is_taken else ""
        _log.critical("error: %s%s", error, hint, extra=event("failed"))
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
