"""The options of the command line for TLS and time limits."""

from __future__ import annotations

import argparse
import resource
import socket
import ssl
from pathlib import Path

import pytest

from servicebus_emulator.amqp.transport.timeouts import ClientTimeouts
from servicebus_emulator.certificates import IssuedCertificate
from servicebus_emulator.cli import add_wire_options, client_timeouts, given_certificate, make_parser
from servicebus_emulator.testing.process import EmulatorProcess


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_wire_options(parser)
    return parser.parse_args(arguments)


def test_default_timeouts_are_those_of_the_service():
    assert client_timeouts(parsed()) == ClientTimeouts()
    assert given_certificate(parsed()) is None


def test_each_timeout_is_an_option_and_zero_means_never():
    given = client_timeouts(parsed("--greeting-seconds", "1", "--opening-seconds", "2", "--link-idle-seconds", "0"))
    assert (given.greeting_seconds, given.opening_seconds, given.link_idle_seconds) == (1, 2, None)
    given = client_timeouts(parsed("--unlinked-seconds", "0.5", "--silence-seconds", "0"))
    assert (given.unlinked_seconds, given.silence_seconds) == (0.5, None)


def test_a_certificate_needs_its_key(tmp_path: Path):
    IssuedCertificate(tmp_path).context()
    certificate, key = ["--certificate", str(tmp_path / "server.pem")], ["--key", str(tmp_path / "server.key")]
    given = given_certificate(parsed(*certificate, *key))
    assert given.context().minimum_version is ssl.TLSVersion.TLSv1_2
    for half in (certificate, key):
        with pytest.raises(ValueError, match=r"allowed: both, or neither"):
            given_certificate(parsed(*half))


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("Endpoint=sb://x/;SharedAccessKeyName=send;SharedAccessKey=c4nary", "Name=send;SharedAccessKey=***"),
        ("sb%3A%2F%2Fx%2F%3BSharedAccessKey%3Dc4nary", "SharedAccessKey%3D***"),
        ("c4nary8xK2/pR9vT+3LmZ7sBw1JhN5yGd6FcU0aEiX5=", "'***'"),
        ("eyJhbGciOiJub25lIn0.eyJjNG5hcnkiOiJjNG5hcnkifQ.c4naryc4nary", "'***'"),
    ],
)
@pytest.mark.parametrize("option", ["--arm-port", "--log-level", "--open"])
def test_a_secret_as_another_argument_is_masked(
    option: str, given: str, shown: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        make_parser().parse_args([f"{option}={given}"])

    error = capsys.readouterr().err
    assert shown in error
    assert "c4nary" not in error


def test_the_process_reports_its_authority_serves_a_name_and_raises_its_file_limit(tmp_path: Path):
    name = "contoso.servicebus.windows.net"
    with EmulatorProcess(["contoso"], data=tmp_path, options=["--certificate-name", name]) as process:
        contoso = process["contoso"]
        assert contoso.ca_file == tmp_path / "tls" / "ca.pem"
        trusting = ssl.create_default_context(cafile=contoso.ca_file)
        for port in (contoso.amqp_port, contoso.admin_port):
            with socket.create_connection((contoso.host, port), timeout=5) as plain:
                trusting.wrap_socket(plain, server_hostname=name).close()
        soft, hard = resource.prlimit(process.pid, resource.RLIMIT_NOFILE)
        assert soft == hard
