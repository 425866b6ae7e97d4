"""The command line's options about TLS, sizes and patience."""

from __future__ import annotations

import argparse
import resource
from pathlib import Path
from typing import Final

from servicebus_emulator.amqp.patience import Patience
from servicebus_emulator.certificates import GivenCertificate

__all__ = ["add_wire_options", "allow_many_connections", "given_certificate", "patience_of"]

_PATIENCE: Final = Patience()
_TIMES: Final = {
    "greeting_seconds": "how long a client may take to begin to speak, and to complete a TLS handshake",
    "opening_seconds": "how long a client may take to open its AMQP connection; 0 = for ever",
    "link_idle_seconds": "after how long an idle link is detached with amqp:link:detach-forced; 0 = never",
    "unlinked_seconds": "after how long a connection without links is closed with amqp:connection:forced; 0 = never",
    "silence_seconds": "after how long a silent connection is dropped; half of it is announced; 0 = never",
}


def add_wire_options(parser: argparse.ArgumentParser) -> None:
    """Add the options, in two groups."""
    tls = parser.add_argument_group("TLS and sizes")
    tls.add_argument(
        "--certificate",
        type=Path,
        metavar="FILE",
        help="the server's certificate for TLS, in PEM (default: one made for this machine)",
    )
    tls.add_argument("--key", type=Path, metavar="FILE", help="the private key of --certificate, in PEM")
    tls.add_argument(
        "--message-kilobytes",
        type=int,
        default=1,
        metavar="N",
        help="how large messages each new queue and topic takes at least: 1024 as in the Premium tier, up to 102400"
        " (default: what each asks for, or else 256)",
    )
    patience = parser.add_argument_group("how long clients are waited for")
    for name, text in _TIMES.items():
        patience.add_argument(
            f"--{name.replace('_', '-')}",
            type=float,
            default=getattr(_PATIENCE, name),
            metavar="N",
            help=f"{text} (default: %(default)g)",
        )


def patience_of(options: argparse.Namespace) -> Patience:
    """Return how long clients are waited for.

    :raises ValueError: when a time is none.
    """
    return Patience(
        greeting_seconds=options.greeting_seconds,
        opening_seconds=_or_never(options, "opening_seconds"),
        link_idle_seconds=_or_never(options, "link_idle_seconds"),
        unlinked_seconds=_or_never(options, "unlinked_seconds"),
        silence_seconds=_or_never(options, "silence_seconds"),
    )


def given_certificate(options: argparse.Namespace) -> GivenCertificate | None:
    """Return the certificate that was given; None = none was.

    :raises CertificateError: when it cannot be used.
    :raises ValueError: when it, or its key, is missing.
    """
    certificate, key = options.certificate, options.key
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise ValueError(f"--certificate is {certificate} and --key is {key}; allowed: both, or neither")
    return GivenCertificate(certificate, key=key)


def _or_never(options: argparse.Namespace, name: str) -> float | None:
    seconds: float = getattr(options, name)
    if not seconds >= 0:
        option = f"--{name.replace('_', '-')}"
        raise ValueError(f"{option} is {seconds:g}; allowed: a number of seconds above 0, or 0 for never")
    return None if seconds == 0 else seconds


def allow_many_connections() -> None:
    """Let this process open as many files, and so connections, as the machine lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
