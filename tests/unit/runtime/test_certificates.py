"""Certificates: made once, kept, whole; or the operator's own."""

from __future__ import annotations

import ipaddress
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509

from razzo.runtime.certificates import CertificateError, given_or_self_signed


def test_the_first_start_makes_a_pair_that_works(tmp_path: Path) -> None:
    files = given_or_self_signed(tmp_path / "data", ["broker-0.brokers", "10.1.2.3", "0.0.0.0", ""])
    for path in files:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(files.certificate, files.private_key)
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"localhost", "broker-0.brokers"} <= set(names.get_values_for_type(x509.DNSName))
    addresses = set(names.get_values_for_type(x509.IPAddress))
    assert {ipaddress.ip_address(host) for host in ("127.0.0.1", "::1", "10.1.2.3")} == addresses
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["server-certificate.pem", "server-key.pem"]


def test_later_starts_keep_it(tmp_path: Path) -> None:
    first = given_or_self_signed(tmp_path).certificate.read_bytes()
    assert given_or_self_signed(tmp_path).certificate.read_bytes() == first


@pytest.mark.parametrize("lost", ["server-certificate.pem", "server-key.pem"])
def test_half_a_pair_is_made_anew(tmp_path: Path, lost: str) -> None:
    first = given_or_self_signed(tmp_path).certificate.read_bytes()
    (tmp_path / lost).unlink()
    files = given_or_self_signed(tmp_path)
    assert files.certificate.read_bytes() != first
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(files.certificate, files.private_key)


def test_a_pair_that_does_not_belong_together_is_made_anew(tmp_path: Path) -> None:
    """What a start leaves that was cut between its two writes."""
    files = given_or_self_signed(tmp_path)
    other = given_or_self_signed(tmp_path / "other")
    files.private_key.write_bytes(other.private_key.read_bytes())
    made = given_or_self_signed(tmp_path)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(made.certificate, made.private_key)


def test_the_operators_own_files_are_used(tmp_path: Path) -> None:
    own = given_or_self_signed(tmp_path / "own")
    files = given_or_self_signed(tmp_path / "data", certificate=own.certificate, private_key=own.private_key)
    assert files == own
    assert not (tmp_path / "data").exists()


def test_refusals(tmp_path: Path) -> None:
    own = given_or_self_signed(tmp_path / "own")
    with pytest.raises(CertificateError, match="together"):
        given_or_self_signed(tmp_path, certificate=own.certificate)
    with pytest.raises(CertificateError, match=r"absent\.pem"):
        given_or_self_signed(tmp_path, certificate=own.certificate, private_key=tmp_path / "absent.pem")
    own.private_key.write_text("not PEM")
    with pytest.raises(CertificateError, match="not PEM"):
        given_or_self_signed(tmp_path / "own")
