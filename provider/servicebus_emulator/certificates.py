"""What TLS needs: a certificate that was given, or one made on first use by an authority of our own."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
    from cryptography.x509 import CertificateBuilder, GeneralName, KeyUsage

__all__ = ["CertificateError", "Certificates", "GivenCertificate", "MadeCertificate"]

_LOCAL: Final = ("localhost", "127.0.0.1", "::1")
_EVERYWHERE: Final = frozenset({"", "0.0.0.0", "::"})  # noqa: S104 - no names of this machine
_AUTHORITY: Final = "Embedded Service Bus authority"
# Apple's clients take no certificate that is valid for longer than 825 days.
_VALID: Final = timedelta(days=820)
_RENEW_BEFORE: Final = timedelta(days=30)
# Clocks of other machines may be late.
_BACKDATED: Final = timedelta(days=1)
_CA, _CHAIN, _KEY, _NAMES = "ca.pem", "server.pem", "server.key", "names.txt"


class CertificateError(ValueError):
    """A certificate or its key cannot be used."""


class Certificates(Protocol):
    """Where TLS gets its certificate from."""

    @property
    def ca_file(self) -> Path:
        """The file of certificates that a client has to trust, for the SDK's ``connection_verify``."""
        ...

    def context(self) -> ssl.SSLContext:
        """Return what a TLS server is made of; the same one each time."""
        ...

    def close(self) -> None:
        """Remove what was made for a while only."""
        ...


class GivenCertificate:
    """A certificate that was given.

    :param certificate: a PEM file with the server's certificate and those above it.
    :param key: a PEM file with its private key, without a pass phrase.
    :raises CertificateError: when they cannot be read or do not belong together.
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

    @property
    def ca_file(self) -> Path:
        """The given file: a client that knows no authority above it trusts the certificate itself."""
        return self._certificate

    def context(self) -> ssl.SSLContext:
        """Return what a TLS server is made of."""
        return self._context

    def close(self) -> None:
        """Nothing: the files are not ours."""


class MadeCertificate:
    """A certificate for this machine, signed by an authority made with it, whose key is thrown away at once.

    Made when it is first asked for; kept in the folder, and made anew when it ends within 30 days or does not
    hold for all names. ECDSA on P-256, valid for 820 days.

    :param folder: where the files are kept; None = in a temporary folder until :meth:`close`.
    :param names: host names and addresses that it has to hold for, beside those of the loopback and the machine's name.
    """

    def __init__(self, folder: Path | None, *, names: Sequence[str] = ()) -> None:
        self._kept = folder
        self._temporary: Path | None = None
        machine = socket.gethostname()
        self._names = tuple(
            each for each in dict.fromkeys((*_LOCAL, machine, *names)) if each not in _EVERYWHERE and each.isascii()
        )
        self._context: ssl.SSLContext | None = None

    @property
    def ca_file(self) -> Path:
        """The certificate of the authority.

        :raises OSError: when the files cannot be written.
        """
        return self._made() / _CA

    def context(self) -> ssl.SSLContext:
        """Return what a TLS server is made of.

        :raises OSError: when the files cannot be read or written.
        """
        if self._context is None:
            folder = self._made()
            self._context = _server_context(folder / _CHAIN, key=folder / _KEY)
        return self._context

    def close(self) -> None:
        """Remove the temporary folder, which outlives a process that is killed: clients may still read the file."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._temporary = None
            self._context = None

    def _made(self) -> Path:
        if self._kept is None:
            if self._temporary is None:
                self._temporary = Path(tempfile.mkdtemp(prefix="servicebus-emulator-"))
                _make(self._temporary, names=self._names)
            return self._temporary
        if not _holds(self._kept, names=self._names):
            self._kept.mkdir(parents=True, exist_ok=True)
            _make(self._kept, names=self._names)
        return self._kept


def _server_context(chain: Path, *, key: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(chain, key, password="")
    return context


def _holds(folder: Path, *, names: Sequence[str]) -> bool:
    """Tell whether the folder holds a certificate for these names that does not end soon.

    Read without `cryptography`, whose import alone takes longer than all else at a start.
    """
    made_for = folder / _NAMES
    if not all((folder / each).is_file() for each in (_CA, _CHAIN, _KEY, _NAMES)):
        return False
    until, *held = made_for.read_text("utf-8").split("\n")
    return set(names) <= set(held) and datetime.fromisoformat(until) > datetime.now(UTC) + _RENEW_BEFORE


def _make(folder: Path, *, names: Sequence[str]) -> None:
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    begins = datetime.now(UTC) - _BACKDATED
    ends = begins + _VALID
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = _authority(authority_key, begins=begins, ends=ends).sign(authority_key, hashes.SHA256())
    server = _server(key, authority_key=authority_key, begins=begins, ends=ends, names=names).sign(
        authority_key, hashes.SHA256()
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    _write_private(folder / _KEY, data=private)
    (folder / _CA).write_bytes(authority.public_bytes(pem))
    (folder / _CHAIN).write_bytes(server.public_bytes(pem))
    # Last: what it says holds once it is there.
    (folder / _NAMES).write_text("\n".join((ends.isoformat(), *names)), "utf-8")


def _authority(key: EllipticCurvePrivateKey, *, begins: datetime, ends: datetime) -> CertificateBuilder:
    from cryptography import x509

    return (
        _builder(_AUTHORITY, key=key, authority_key=key, begins=begins, ends=ends)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
    )


def _server(
    key: EllipticCurvePrivateKey,
    *,
    authority_key: EllipticCurvePrivateKey,
    begins: datetime,
    ends: datetime,
    names: Sequence[str],
) -> CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID

    return (
        _builder(names[0], key=key, authority_key=authority_key, begins=begins, ends=ends)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_general_name(each) for each in names]), critical=False)
    )


def _builder(
    name: str,
    *,
    key: EllipticCurvePrivateKey,
    authority_key: EllipticCurvePrivateKey,
    begins: datetime,
    ends: datetime,
) -> CertificateBuilder:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject, issuer = (x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, each)]) for each in (name, _AUTHORITY))
    above = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority_key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(above, critical=False)
    )


def _key_usage(*, signs_certificates: bool) -> KeyUsage:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _write_private(path: Path, *, data: bytes) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)


def _general_name(name: str) -> GeneralName:
    from cryptography import x509

    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)
