"""TLS certificates: the given one, or one issued on first use by a private authority."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, Protocol, cast

_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_WILDCARDS: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - addresses to bind, not names of a host
# Apple's clients reject certificates that are valid for more than 825 days.
_VALIDITY: Final = timedelta(days=820)
_RENEW_BEFORE: Final = timedelta(days=30)
# The clocks of other machines may be slow.
_BACKDATED: Final = timedelta(days=1)
_CA, _CHAIN, _KEY, _NAMES = "ca.pem", "server.pem", "server.key", "names.txt"


class CertificateError(ValueError):
    """The given certificate or its key cannot be used."""


class CertificateSource(Protocol):
    """Supplies the TLS server's certificate."""

    def begin(self) -> None:
        """Do what takes long in another process, until the certificate is needed."""

    @property
    def ca_file(self) -> Path:
        """The PEM file of authorities that a client must trust (the SDK's ``connection_verify``)."""

    def context(self) -> ssl.SSLContext:
        """Return the server's TLS context; the same object each time."""

    def close(self) -> None:
        """Remove temporary files."""


class GivenCertificate:
    """A certificate from files.

    :param certificate: a PEM file with the server's certificate and its chain.
    :param key: a PEM file with its private key, without a pass phrase.
    :raises CertificateError: the files cannot be read or do not match.
    """

    def __init__(self, certificate: Path, *, key: Path) -> None:
        self._certificate = certificate
        try:
            self._context = _server_context(certificate, key=key)
        except (OSError, ValueError) as error:
            raise CertificateError(
                f"certificate is {str(certificate)!r} with the key {str(key)!r}: {error}; allowed: two PEM files, a"
                " certificate and its private key without a pass phrase"
            ) from error

    def begin(self) -> None:
        """Do nothing: there is a certificate."""

    @property
    def ca_file(self) -> Path:
        """The given file: a client without the authority above it can trust the certificate itself."""
        return self._certificate

    def context(self) -> ssl.SSLContext:
        """Return the server's TLS context."""
        return self._context

    def close(self) -> None:
        """Do nothing: the files belong to the user."""


class IssuedCertificate:
    """A certificate for this machine, issued by an authority whose private key is discarded at once.

    Issued on first use, kept in the folder, and issued again within 30 days of its end or when it lacks a name.

    :param folder: where to keep the files; ``None`` means a temporary folder, removed by :meth:`close`.
    :param names: host names and addresses to cover besides loopback and the machine's name.
    """

    def __init__(self, folder: Path | None, *, names: Sequence[str] = ()) -> None:
        self._folder = folder
        self._temporary: Path | None = None
        candidates = dict.fromkeys((*_LOOPBACK, socket.gethostname(), *names))
        self._names = tuple(name for name in candidates if name not in _WILDCARDS and name.isascii())
        self._context: ssl.SSLContext | None = None
        self._issuing: subprocess.Popen[bytes] | None = None

    def begin(self) -> None:
        """Issue in another process meanwhile: `cryptography` takes a quarter of the memory of this one."""
        # What keeps it from being issued, such as a folder that cannot be written, is raised where it is needed.
        with suppress(OSError):
            folder = self._prepared()
            if folder is not None and sys.executable:
                command = [sys.executable, "-m", __name__, str(folder), *self._names]
                self._issuing = subprocess.Popen(command, stderr=subprocess.DEVNULL)  # noqa: S603 - our own command

    @property
    def ca_file(self) -> Path:
        """The authority's certificate.

        :raises OSError: the files cannot be written.
        """
        return self._issued() / _CA

    def context(self) -> ssl.SSLContext:
        """Return the server's TLS context.

        :raises OSError: the files cannot be read or written.
        """
        if self._context is None:
            folder = self._issued()
            self._context = _server_context(folder / _CHAIN, key=folder / _KEY)
        return self._context

    def close(self) -> None:
        """Remove the temporary folder. After a kill it stays: clients may still read the file."""
        if self._issuing is not None:
            self._issuing.wait()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None
            self._context = None

    def _issued(self) -> Path:
        if self._issuing is not None:
            self._issuing.wait()
            self._issuing = None
        folder = self._prepared()
        if folder is not None:
            _issue(folder, names=self._names)
        return cast("Path", self._folder or self._temporary)

    def _prepared(self) -> Path | None:
        """Return the folder in which to issue a certificate; None = there is one."""
        if self._folder is None and self._temporary is None:
            self._temporary = Path(tempfile.mkdtemp(prefix="servicebus-emulator-"))
        folder = cast("Path", self._folder or self._temporary)
        if _is_current(folder, names=self._names):
            return None
        folder.mkdir(parents=True, exist_ok=True)
        return folder


def _server_context(chain: Path, *, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(chain, key, password="")
    return context


def _is_current(folder: Path, *, names: Sequence[str]) -> bool:
    """Return whether the folder holds a certificate for these names that does not expire soon.

    Reads a text file, not the certificate: importing `cryptography` takes longer than the rest of the start.
    """
    if not all((folder / file).is_file() for file in (_CA, _CHAIN, _KEY, _NAMES)):
        return False
    expires, *covered = (folder / _NAMES).read_text("utf-8").split("\n")
    return set(names) <= set(covered) and datetime.fromisoformat(expires) > datetime.now(UTC) + _RENEW_BEFORE


def _issue(folder: Path, *, names: Sequence[str]) -> None:
    import trustme

    starts = datetime.now(UTC) - _BACKDATED
    expires = starts + _VALIDITY
    authority = trustme.CA(path_length=0, organization_name="Embedded Service Bus authority")
    issued = authority.issue_cert(*names, common_name=names[0], not_before=starts, not_after=expires)
    _write_private(folder / _KEY, data=issued.private_key_pem.bytes())
    authority.cert_pem.write_to_path(folder / _CA)
    (folder / _CHAIN).write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    # Written last: it declares the other files complete.
    (folder / _NAMES).write_text("\n".join((expires.isoformat(), *names)), "utf-8")


def _write_private(path: Path, *, data: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


if __name__ == "__main__":
    _issue(Path(sys.argv[1]), names=sys.argv[2:])
