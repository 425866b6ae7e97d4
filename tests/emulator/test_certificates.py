"""Certificates of the emulator."""

from __future__ import annotations

import asyncio
import re
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from servicebus_emulator import Emulator
from servicebus_emulator.certificates import CertificateError, GivenCertificate, IssuedCertificate

# azure-servicebus 7.15 asks aiohttp for a WebSocket in clear with ssl=None.
pytestmark = pytest.mark.filterwarnings("ignore:ssl=None is deprecated:DeprecationWarning")


SASL_HEADER = b"AMQP\x03\x01\x00\x00"


def test_an_issued_certificate_covers_this_machine_and_is_kept(tmp_path: Path):
    made = IssuedCertificate(tmp_path / "tls", names=["sb.example.org", "0.0.0.0"])  # noqa: S104 - a name it cannot hold for
    first = made.ca_file.read_bytes()
    key_file = tmp_path / "tls" / "server.key"
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    certificate = x509.load_pem_x509_certificate((tmp_path / "tls" / "server.pem").read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "sb.example.org"} <= set(names.get_values_for_type(x509.DNSName))
    assert {"127.0.0.1", "::1"} == {str(each) for each in names.get_values_for_type(x509.IPAddress)}
    made.close()
    again = IssuedCertificate(tmp_path / "tls", names=["sb.example.org"])
    assert again.ca_file.read_bytes() == first
    assert again.context().minimum_version is ssl.TLSVersion.TLSv1_2
    assert IssuedCertificate(tmp_path / "tls", names=["other.example.org"]).ca_file.read_bytes() != first


def test_a_certificate_that_expires_soon_is_renewed(tmp_path: Path):
    first = IssuedCertificate(tmp_path).ca_file.read_bytes()
    made_for = tmp_path / "names.txt"
    made_for.write_text(re.sub(r"^\S+", "2020-01-01T00:00:00+00:00", made_for.read_text()))
    assert IssuedCertificate(tmp_path).ca_file.read_bytes() != first


def test_without_a_folder_a_certificate_lasts_until_it_is_closed():
    made = IssuedCertificate(None)
    ca_file = made.ca_file
    assert ca_file.is_file()
    made.close()
    assert not ca_file.exists()


async def test_a_given_certificate_is_served(tmp_path: Path):
    made = IssuedCertificate(tmp_path)
    authority = made.ca_file
    given_one = GivenCertificate(tmp_path / "server.pem", key=tmp_path / "server.key")
    async with Emulator(["contoso"], certificates=given_one) as emulator:
        port = emulator["contoso"].amqp_port
        context = ssl.create_default_context(cafile=authority)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        writer.write(SASL_HEADER)
        assert await asyncio.wait_for(reader.readexactly(8), 3) == SASL_HEADER
        writer.transport.abort()
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.2"
        writer.transport.abort()


def test_an_unusable_certificate_is_refused_with_the_reason(tmp_path: Path):
    IssuedCertificate(tmp_path / "a").context()
    IssuedCertificate(tmp_path / "b").context()
    for certificate, key in (
        (tmp_path / "a" / "server.pem", tmp_path / "b" / "server.key"),
        (tmp_path / "none.pem", tmp_path / "a" / "server.key"),
        (tmp_path / "a" / "server.key", tmp_path / "a" / "server.pem"),
    ):
        with pytest.raises(CertificateError, match=r"allowed: two PEM files"):
            GivenCertificate(certificate, key=key)
