"""A certificate for the hosts of namespaces, and its authority, which the test run trusts."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.conformance.names import SUFFIX

__all__ = ["Identity", "identity_in", "make_identity", "trust", "trusting"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Files in PEM: the certificate with its key, and what trusts it."""

    certificate: Path
    key: Path
    authorities: Path


def make_identity(folder: Path) -> Identity:
    """Make a certificate for all namespaces and write it to a folder.

    :param folder: where the files are written.
    """
    files = identity_in(folder)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "embedded Service Bus, conformance run")])
    names = [x509.DNSName(f"*{SUFFIX}"), x509.IPAddress(ip_address("127.0.0.1"))]
    now = datetime.now(tz=UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoded = certificate.public_bytes(serialization.Encoding.PEM)
    files.certificate.write_bytes(encoded)
    files.key.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    files.authorities.write_bytes(Path(certifi.where()).read_bytes() + encoded)
    return files


def identity_in(folder: Path) -> Identity:
    """Return the identity that was made in a folder."""
    return Identity(
        certificate=folder / "certificate.pem", key=folder / "key.pem", authorities=folder / "authorities.pem"
    )


def trusting(identity: Identity) -> dict[str, str]:
    """Return the environment in which a process trusts the certificate, as with an installed authority.

    :param identity: what to trust.
    """
    authorities = str(identity.authorities)
    return {"SSL_CERT_FILE": authorities, "REQUESTS_CA_BUNDLE": authorities}


def trust(identity: Identity) -> None:
    """Trust the certificate in this process, where clients look beside their environment.

    :param identity: what to trust.
    """
    certifi.where = lambda: str(identity.authorities)
