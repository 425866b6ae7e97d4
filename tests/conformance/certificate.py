"""A self-signed certificate for Service Bus host names, trusted by the test run."""

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

from tests.conformance.host_resolution import SUFFIX


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """PEM files: certificate, key, and certificate authorities including the certificate."""

    certificate: Path
    key: Path
    authorities: Path


def make_identity(folder: Path) -> Identity:
    """Create a certificate for all namespaces and write it to a folder."""
    files = identity_files(folder)
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


def identity_files(folder: Path) -> Identity:
    return Identity(
        certificate=folder / "certificate.pem", key=folder / "key.pem", authorities=folder / "authorities.pem"
    )


def trust_environment(identity: Identity) -> dict[str, str]:
    """Return environment variables that make a process trust the certificate."""
    authorities = str(identity.authorities)
    return {"SSL_CERT_FILE": authorities, "REQUESTS_CA_BUNDLE": authorities}


def trust_in_process(identity: Identity) -> None:
    """Make this process trust the certificate: some clients use certifi and ignore the environment."""
    certifi.where = lambda: str(identity.authorities)
