from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from door.certificates import Authority

from razzo.door.server import TlsFiles
from razzo.door.tls import CertificateWatch


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def test_files_are_changed_until_they_are_read_and_when_they_are_replaced(authority: Authority, tmp_path: Path) -> None:
    watch = CertificateWatch(authority.server_files(tmp_path))
    assert watch.changed()
    key, chain, client_ca = watch.read()
    assert (b"PRIVATE KEY" in key, b"CERTIFICATE" in chain, client_ca) == (True, True, None)
    assert not watch.changed()
    authority.server_files(tmp_path)
    assert watch.changed()
    assert watch.read()[0] != key


def test_authority_for_clients_is_watched_too(authority: Authority, tmp_path: Path) -> None:
    files = authority.server_files(tmp_path, mutual=True)
    own_ca = tmp_path / "ca.pem"
    own_ca.write_bytes(authority.certificate.read_bytes())
    watch = CertificateWatch(TlsFiles(files.certificate, files.private_key, own_ca))
    assert watch.read()[2] == own_ca.read_bytes()
    own_ca.write_bytes(own_ca.read_bytes() + b"\n")
    assert watch.changed()


def test_context_is_of_today(authority: Authority, tmp_path: Path) -> None:
    context = CertificateWatch(authority.server_files(tmp_path)).context()
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_NONE
    mutual = CertificateWatch(authority.server_files(tmp_path, mutual=True)).context()
    assert mutual.verify_mode is ssl.CERT_REQUIRED


def test_reading_a_context_settles_the_watch_only_when_it_is_good(authority: Authority, tmp_path: Path) -> None:
    files = authority.server_files(tmp_path)
    watch = CertificateWatch(files)
    watch.context()
    assert not watch.changed()
    files.certificate.write_bytes(b"not a certificate")
    with pytest.raises(ssl.SSLError):
        watch.context()
    assert watch.changed()


def test_missing_file_is_an_os_error(tmp_path: Path) -> None:
    watch = CertificateWatch(TlsFiles(tmp_path / "a", tmp_path / "b"))
    for ask in (watch.changed, watch.read, watch.context):
        with pytest.raises(FileNotFoundError):
            ask()
