"""The certificate of a client port: the operator's own, or a self-signed one made at the first start.

A self-signed certificate is enough for the clients that use TLS by default (Java, Go, C#, C++ do not check it); Python,
Node and Rust verify, so their users need the operator's certificate or plaintext.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CERTIFICATE_FILE = "server-certificate.pem"
KEY_FILE = "server-key.pem"
VALID_DAYS = 3650
"""A self-signed certificate is checked by nobody who would notice its end, so it outlives the machine."""
CLOCK_SKEW = datetime.timedelta(days=1)
COMMON_NAME = "razzo"
NAMES_MAX = 64
"""Host names in one certificate; more are left out."""


class CertificateFiles(NamedTuple):
    """Paths of PEM files, in the order of the fields of `razzo.door.TlsFiles`: ``TlsFiles(*files)``."""

    certificate: Path
    private_key: Path


class CertificateError(OSError):
    """The certificate files are not usable; the message says which and why."""


def given_or_self_signed(
    directory: Path, hosts: Iterable[str] = (), certificate: Path | None = None, private_key: Path | None = None
) -> CertificateFiles:
    """The operator's files when both are given, else the self-signed pair in `directory`, made now if it is not there.

    `hosts` are names and addresses that clients dial, beside this machine's own. CertificateError when only one of both
    files is given or one cannot be read.
    """
    if (certificate is None) != (private_key is None):
        raise CertificateError("a certificate and its private key are given together or not at all")
    if certificate is not None and private_key is not None:
        for path in (certificate, private_key):
            if not os.access(path, os.R_OK):
                raise CertificateError(f"cannot read {path}")
        return CertificateFiles(certificate, private_key)
    files = CertificateFiles(directory / CERTIFICATE_FILE, directory / KEY_FILE)
    if not _match(files):
        directory.mkdir(parents=True, exist_ok=True)
        _make(files, _names(hosts))
    return files


def _match(files: CertificateFiles) -> bool:
    """Whether both files are there and belong together. A start that was cut between the two writes leaves neither."""
    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        key = serialization.load_pem_private_key(files.private_key.read_bytes(), password=None)
    except FileNotFoundError:
        return False
    except ValueError as error:
        raise CertificateError(f"{files.certificate} or {files.private_key} is not PEM: {error}") from error
    return certificate.public_key() == key.public_key()


def _make(files: CertificateFiles, names: list[x509.GeneralName]) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, COMMON_NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write(
        files.private_key,
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        ),
    )
    _write(files.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _write(path: Path, content: bytes) -> None:
    """Whole or not at all, readable by the owner only, on disk when it returns."""
    draft = path.with_name(path.name + ".new")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.fchmod(handle, 0o600)  # a left-over draft keeps its mode through O_CREAT
        os.write(handle, content)
        os.fsync(handle)
    finally:
        os.close(handle)
    os.replace(draft, path)


def _names(hosts: Iterable[str]) -> list[x509.GeneralName]:
    wanted = ["localhost", "127.0.0.1", "::1", socket.gethostname(), *hosts]
    names: dict[str, x509.GeneralName] = {}
    for host in wanted:
        text = host.strip().strip("[]")
        if not text or text in names or len(names) == NAMES_MAX:
            continue
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            if text.isascii():
                names[text] = x509.DNSName(text)
        else:
            if not address.is_unspecified:
                names[text] = x509.IPAddress(address)
    return list(names.values())
